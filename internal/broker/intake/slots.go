package intake

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
)

// slots counts what the slots of a server are for: tasks that asynq has, those that wait for it in memory, and those
// that a call asks for. It is safe for concurrent use.
type slots struct {
	most int

	mu        sync.Mutex
	running   map[name]running     // the tasks that asynq has
	leased    time.Time            // until then none of their leases ends
	leaseless map[name]time.Time   // the tasks whose leases have ended, and when: asynq learns of that with its next heartbeats
	ready     []arrival            // in memory, the oldest first
	found     map[*place][]arrival // those without a slot: the next call of their place with a free one takes their locks
	waiting   int                  // how many they are
	asked     int
	admitting int           // that are about to get their locks
	starved   bool          // the last fetch of asynq has got no slot, because other calls may fill it
	finds     bool          // the last task that came was found without locks
	brief     bool          // the last run that ended was brief
	arrived   chan struct{} // has a value when a task has come
}

// running is a task that asynq has. Once asynq's lease on it has ended, asynq ends the run without an acknowledgement.
type running struct {
	run   string
	began time.Time
	until time.Time // when the lease ends, or a little later, by the clock that asynq goes by: the monotonic one
	over  bool      // its handler has returned
}

// arrival is a task in memory.
type arrival struct {
	Task
	at, leased time.Time // when it came, and when its lease began
}

// name identifies a task.
type name struct{ queue, id string }

func newSlots(most int) *slots {
	return &slots{most: max(most, 1), running: map[name]running{}, leaseless: map[name]time.Time{}, found: map[*place][]arrival{}, arrived: make(chan struct{}, 1)}
}

// mostAsked bounds the tasks of one call: each of them has an order of the queues in it, also when there is no task.
const mostAsked = 128

// ask reserves the free slots, least at least unless tasks wait for one, for a call of a place with so many acknowledgements; of
// the free ones most at most, unless that is negative. It returns the tasks without locks that get a slot, and how many others
// to ask for. A task whose keys are found needs one call more, so while runs are brief, tasks are taken for more slots than are
// free: they wait for one only briefly.
func (s *slots) ask(p *place, least, acks, most int) (found []arrival, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.most - s.occupied(time.Now()) - len(s.ready)
	k := max(min(free-s.admitting, len(s.found[p]), mostAsked), 0)
	found = s.found[p][:k:k]
	s.keepFound(p, s.found[p][k:])
	s.admitting += k
	if s.admitting+s.waiting > 0 {
		least = 0
	}
	ahead := 0
	if acks > 0 && s.finds && s.brief {
		ahead = min(2*free, s.most)
	}
	n = max(min(free+ahead-s.admitting-s.waiting-s.asked, mostAsked), least)
	if limit := most + min(2*most, ahead); most >= 0 && n > limit {
		n = limit
		if s.starved { // it may have what is left
			s.arrive()
		}
	}
	s.asked += n
	if acks == 0 {
		s.starved = n == 0 && k == 0
	}
	return found, n
}

// keepFound has these tasks of a place wait for its next call. The caller holds the mutex.
func (s *slots) keepFound(p *place, found []arrival) {
	s.waiting += len(found) - len(s.found[p])
	if len(found) == 0 {
		delete(s.found, p)
	} else {
		s.found[p] = found
	}
}

// awaited returns the places for whose next call tasks wait.
func (s *slots) awaited() []*place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.found))
}

// keep gives back all but k of n slots that a call has asked for, and returns k.
func (s *slots) keep(n, k int) int {
	if n > k {
		s.answered(n-k, nil, time.Time{})
	}
	return k
}

// admit counts tasks that were asked for as being admitted.
func (s *slots) admit(n int) { s.admitted(-n) }

// admitted counts tasks that have got their locks, or are to be parked, as others that were asked for.
func (s *slots) admitted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitting -= n
	s.asked += n
}

// wait has tasks wait for a call of their place that takes their locks, those that were woken before the others.
func (s *slots) wait(p *place, tasks []Task, leased time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds = true
	found := s.found[p]
	at := slices.IndexFunc(found, func(a arrival) bool { return !a.Woken })
	for _, t := range tasks {
		a := arrival{t, time.Now(), leased}
		if t.Woken && at >= 0 {
			found = slices.Insert(found, at, a)
			at++
		} else {
			found = append(found, a)
		}
	}
	s.keepFound(p, found)
	s.arrive()
}

// answered notes what a call that asked for n tasks has brought, whose leases began at a time.
func (s *slots) answered(n int, tasks []Task, leased time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked -= n
	for _, t := range tasks {
		s.finds = t.found
		s.ready = append(s.ready, arrival{t, time.Now(), leased})
	}
	if len(tasks) > 0 || s.starved && n > 0 { // then there may be a slot for the next fetch
		s.arrive()
	}
}

// free returns how many slots no task has or is asked for, as ask counts them.
func (s *slots) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most - s.occupied(time.Now()) - len(s.ready) - s.admitting - s.waiting - s.asked
}

// starves reports whether the last fetch of asynq has got no slot, so that the next task comes with another call.
func (s *slots) starves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starved
}

// arrive ends the pause of a server that is idle.
func (s *slots) arrive() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// stale is how old a task in memory may be: its lease has long to go. One that is older, because the process was
// suspended, goes back.
const stale = lease / 2

// take gives asynq the oldest task in memory that need not rest, if there is one. If all of them rest, it returns for how
// long at least one does. asynq's heartbeater learns of the end of a run before its slot is free. So it knows of all ends
// when asynq has a task for each slot but the one that it asks with.
func (s *slots) take(resting func(id string, now time.Time, learned bool) time.Duration) (t Task, ok bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	learned := s.occupied(now)+1 == s.most // if there are more, a run is counted that is over
	for i, ready := range s.ready {
		if leasing.Since(ready.leased) > stale {
			return Task{}, false, 0
		}
		if left := resting(ready.ID, now, learned); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		s.ready = slices.Delete(s.ready, i, i+1)
		s.calm()
		s.running[name{ready.Queue, ready.ID}] = running{run: ready.Run, began: now, until: now.Add(lease)}
		return ready.Task, true, 0
	}
	return Task{}, false, wait
}

// calm takes the value out of arrived when no task is in memory, so that it ends no pause. The caller holds the mutex.
func (s *slots) calm() {
	if len(s.ready) > 0 || s.waiting > 0 {
		return
	}
	select {
	case <-s.arrived:
	default:
	}
}

// occupied returns how many slots have tasks whose leases have not ended. The others are forgotten. The caller holds the
// mutex.
func (s *slots) occupied(now time.Time) int {
	if !now.After(s.leased) {
		return len(s.running)
	}
	s.leased = now.Add(lease)
	maps.DeleteFunc(s.leaseless, func(_ name, at time.Time) bool { return leasing.Since(at) > learned })
	for n, r := range s.running {
		if now.After(r.until) {
			delete(s.running, n)
			s.leaseless[n] = r.until
		} else if r.until.Before(s.leased) {
			s.leased = r.until
		}
	}
	return len(s.running)
}

// extend notes that asynq has extended its leases on tasks of a queue, which takes the time when it began to. A lease that
// has ended meanwhile stays so.
func (s *slots) extend(queue string, ids []string, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, id := range ids {
		n := name{queue, id}
		if r, ok := s.running[n]; ok && !now.After(r.until) {
			r.until = began.Add(lease)
			s.running[n] = r
		}
	}
}

// end notes that asynq acknowledges a task, and returns its run; ok is false when it is not known.
func (s *slots) end(n name) (run string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.running[n]
	delete(s.running, n)
	delete(s.leaseless, n)
	s.brief = ok && leasing.Since(r.began) < brief
	return r.run, ok
}

// ending notes that asynq is about to acknowledge a task.
func (s *slots) ending(n name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.running[n]; ok {
		r.over = true
		s.running[n] = r
	}
}

// learned is how long after the end of its lease on a task asynq may not know of that: its heartbeater looks each 5 s.
const learned = 15 * time.Second

// works reports whether asynq may have a task whose handler has not returned, for all it knows.
func (s *slots) works(n name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.running[n]
	until := s.leaseless[n]
	if ok {
		until = r.until
	}
	return !r.over && leasing.Since(until) <= learned
}

// run returns the run in which asynq has a task, or "".
func (s *slots) run(n name) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[n].run
}

// full reports whether asynq has a task for each slot.
func (s *slots) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.occupied(time.Now()) >= s.most
}

// expired takes the tasks out of memory that came no later than at a time, and returns when the next one came; the zero
// time when there is none.
func (s *slots) expired(by time.Time) (tasks []Task, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := func(list []arrival) []arrival {
		return slices.DeleteFunc(list, func(a arrival) bool {
			over := !a.at.After(by)
			if over {
				tasks = append(tasks, a.Task)
			} else if next.IsZero() || a.at.Before(next) {
				next = a.at
			}
			return over
		})
	}
	s.ready = fresh(s.ready)
	for p, found := range s.found {
		n := len(found)
		found = fresh(found)
		s.waiting += len(found) - n
		if s.found[p] = found; len(found) == 0 {
			delete(s.found, p)
		}
	}
	s.calm()
	return tasks, next
}
