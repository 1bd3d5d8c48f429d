package traces

import (
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// brief returns the tasks of the setting, whose handlers are brief, and of which some fail.
func (p *play) brief(fails int) (jobs []job) {
	for i, keys := range p.jobs {
		j := job{ID: p.tasks[i], Keys: keys, Holds: time.Duration(1+p.random.IntN(20)) * time.Millisecond, Retries: 1}
		if fails > 0 {
			j.Fails = p.random.IntN(fails + 2)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// heldFirst has the handler of the first task work until another task is parked.
func (p *play) heldFirst() {
	jobs := p.brief(0)
	first := p.hold(jobs)
	p.begin(jobs...)
	redistest.Receive(p.T, p.started, limit)
	p.waiting(time.Second)
	close(first)
}

// hold has the first run of each task wait.
func (p *play) hold(jobs []job) chan struct{} {
	hold := make(chan struct{})
	for _, j := range jobs {
		p.holds[run{j.ID, 1}] = hold
	}
	return hold
}

// timer has the timers of parked tasks fire while their key is held.
func (p *play) timer() {
	jobs := p.brief(0)
	first := p.hold(jobs)
	p.begin(jobs...)
	redistest.Receive(p.T, p.started, limit)
	p.waiting(time.Second)
	p.hasten()
	p.until(time.Second, func() bool { return p.client.Exists(p.Context(), "asynq:{"+queue+"}:retry").Val() == 0 })
	p.waiting(time.Second)
	close(first)
}

// faulty has a fault happen to a call of either worker.
func (p *play) faulty(f fault, at string) {
	for _, w := range p.workers {
		w.tap.arm(f, at)
	}
	p.begin(p.brief(0)...)
}

// lateFetch has a fetch arrive after it was recalled, when there are tasks.
func (p *play) lateFetch() {
	w := p.workers[p.random.IntN(2)]
	p.pause()
	p.enqueue(p.brief(0)...)
	w.tap.arm(late, "pending,")
	redistest.Receive(p.T, w.tap.again, limit) // the recall
	p.mark(markBegin)
	p.deliver(w)
}

// lateAck has the acknowledgement of a run that has failed arrive while its task runs again.
func (p *play) lateAck() {
	jobs := p.brief(0)
	first := jobs[0].ID
	jobs[0].Fails, jobs[0].Holds = 1, time.Millisecond
	hold := make(chan struct{})
	p.holds[run{first, 2}] = hold
	for _, w := range p.workers {
		w.tap.arm(late, "t,active,")
	}
	p.begin(jobs...)
	for range 100 {
		if r := redistest.Receive(p.T, p.started, limit); r.run == (run{first, 2}) {
			break
		}
	}
	for _, w := range p.workers {
		p.deliver(w)
	}
	close(hold)
}

// expire has the lock of a run end while its handler works. Elsewhere than in order, a worker that finds a key free in Redis which it holds
// itself, for all that it knows, lets go of it or parks the task once more, which the model does not know.
func (p *play) expire() {
	jobs := p.brief(0)
	hold := p.hold(jobs)
	p.begin(jobs...)
	redistest.Receive(p.T, p.started, limit)
	p.waiting(time.Second)
	p.client.Del(p.Context(), lockOf(jobs[0].Keys[0]))
	p.hasten()
	p.waiting(time.Second)
	close(hold)
}

// stopOne shuts the last worker down while a handler works.
func (p *play) stopOne() {
	jobs := p.brief(0)
	p.begin(jobs...)
	redistest.Receive(p.T, p.started, limit)
	p.workers[1].stop()
	p.mark(exits.String() + " 1")
}

// crash kills a worker while its handler works. Its locks and asynq's leases on its tasks end, and another worker takes its place.
func (p *play) crash() {
	jobs := p.brief(0)
	hold := p.hold(jobs)
	p.begin(jobs...)
	w := redistest.Receive(p.T, p.started, limit).worker
	p.waiting(time.Second)
	w.tap.kill()
	p.mark(crashes.String() + " " + string(rune('0'+w.number)))
	p.lapse(w)
	close(hold)
	p.work(w.number) // asynq looks for tasks to recover when a server starts
	p.until(5*time.Second, func() bool { p.hasten(); n, err := p.left(); return n == 0 && err == nil })
}
