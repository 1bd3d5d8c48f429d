package crashtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

const (
	// restLimit bounds a recovery, in virtual time. asynq brings a task back after 55 to 120 s.
	restLimit = 15 * time.Minute
	// forgotten is more than the TTL of a lock.
	forgotten = time.Minute
)

// run is one run of a scenario with a fault at one step.
type run struct {
	*testing.T
	scenario
	m        *miniredis.Miniredis
	client   *redis.Client // of the test itself
	ledger   *ledger
	at       spot
	tap      *tap
	crashed  chan struct{} // closed when the process has stopped
	produced chan struct{} // closed when all jobs have been enqueued

	producers []*producer
	// What a producer was at when it was stopped: a job that may have been enqueued, and one that was not and that nobody enqueues.
	unsure, lost string

	fetching sync.Mutex // held while the mate fetches a task
	mate     *process   // nil without one
	held     sync.Map   // the tasks that the mate has, with their queues

	// What was found at the fault: tasks that asynq gives up, because they were active on their last attempt, and tasks
	// that asynq runs again although their effect is there.
	givenUp, again []string
	// Tasks that asynq may give up although their effect is there.
	mayGiveUp []string
	// Tasks among those given up that had only waited in order: while asynq's recoverer cannot be at them, the next in line has them brought
	// back, which counts for nothing.
	waited []string
}

// play runs a scenario with a fault at one of its steps, or none. It returns how many steps of each name the process has taken that the fault
// was for, the one at the fault included.
func play(t *testing.T, sc scenario, at spot) (taken map[string]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &run{T: t, scenario: sc, ledger: newLedger(sc.order), at: at, crashed: make(chan struct{}), produced: make(chan struct{})}
		r.m, r.client = redistest.Virtual(t)
		teach(r.m)
		if strings.HasPrefix(at.name, ofProducer) {
			at = spot{}
		}
		r.tap = newTap(r.m, at, sc.fault)
		r.tap.sent = r.sent
		r.tap.stop = func() { r.ledger.stop(r.tap) }
		r.tap.found = r.find
		taken = r.play()
	})
	return taken
}

func (r *run) play() (taken map[string]int) {
	first := begin(r.T, r.m, "first", r.settings, r.gate, r.ledger, r.tap)
	if r.scenario.mate {
		r.mate = r.beginMate()
	}
	go r.produce()
	began := time.Now()
	r.rest(r.crashed)
	r.checkTime(time.Since(began))
	if r.tap.isDead() {
		time.Sleep(r.restart)
		if r.mate == nil {
			next := r.settings
			if r.next != nil {
				next = *r.next
			}
			hook := newTap(r.m, spot{}, before)
			hook.sent = r.sent
			second := begin(r.T, r.m, "second", next, r.gate, r.ledger, hook)
			r.rest(nil)
			second.end()
		} else {
			r.rest(nil)
		}
	}
	steps, taken := r.tap.seen()
	first.end()
	if r.mate != nil {
		r.mate.end()
	}
	<-r.produced
	for i, p := range r.producers {
		if _, enqueued := p.tap.seen(); i == 0 && slices.ContainsFunc(r.jobs, func(j job) bool { return j.InLine || j.Waits }) {
			for name, n := range enqueued {
				taken[ofProducer+name] = n
			}
		}
		p.end()
	}
	time.Sleep(forgotten)
	r.check()
	if r.Failed() {
		r.Logf("%s %v; the steps were %q", r.fault, r.at, steps)
	}
	return taken
}

// sent notes what the answer to a command tells of order and locks.
func (r *run) sent(cmd redis.Cmder, began time.Time) {
	if j, ok := r.joined(cmd); ok && !j.InLine {
		r.ledger.arrive(j, began)
	}
}

// find notes what the process leaves behind, or what the step that is taken again undoes.
func (r *run) find(step redis.Cmder) {
	if !r.tap.fault.lives() {
		r.fetching.Lock()
		for _, queue := range r.queues() {
			for _, id := range r.list(queue, "active") {
				if _, ok := r.held.Load(queue + "/" + id); !ok {
					r.leave(queue, id)
				}
			}
		}
		r.fetching.Unlock()
		close(r.crashed)
		return
	}
	switch stepOf(r.m, step) {
	case "asynq/retry", "release":
		// asynq's script takes the task for the same run of it, though it may be the next one by now. A release that comes after another
		// one has had the key looks as if the lease had been lost, and what was done under it counts as failed.
		for _, j := range r.jobs {
			if isFor(step, j.ID) {
				r.again = append(r.again, j.ID)
				r.mayGiveUp = append(r.mayGiveUp, j.ID)
			}
		}
	}
}

// isFor reports whether a script is for a task: it has its ID or a label with it among its arguments.
func isFor(cmd redis.Cmder, id string) bool {
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		word, _ := arg.(string)
		return word == id || strings.HasSuffix(word, "/"+id)
	})
}

// leave notes one task that nobody works on any more, though asynq takes it to be active.
func (r *run) leave(queue, id string) {
	j := r.job(id)
	if j.Retries == 0 {
		r.givenUp = append(r.givenUp, queue+"/"+id)
		r.ledger.giveUp(j.ID)
		if r.order != middleware.BestEffort && !begun(r.m, j.keys()[0], queue, id) && (r.restart < line.LeftAfter || r.mate != nil) {
			r.waited = append(r.waited, queue+"/"+id)
		}
	}
	if r.ledger.has(j.ID) {
		r.again = append(r.again, j.ID)
	}
}

// job returns the job of a task.
func (r *run) job(id string) job {
	for _, j := range r.jobs {
		if j.ID == id {
			return j
		}
	}
	r.Errorf("nobody has enqueued %q", id)
	return job{}
}

// jobOf returns the job of a task that is named with its queue.
func (r *run) jobOf(name string) job {
	_, id, _ := strings.Cut(name, "/")
	return r.job(id)
}

// queueOf returns the queue that a script of asynq is for.
func queueOf(cmd redis.Cmder) string {
	rest, _ := strings.CutPrefix(fmt.Sprint(cmd.Args()[3]), "asynq:{")
	queue, _, _ := strings.Cut(rest, "}")
	return queue
}

// queues returns all queues of the scenario.
func (r *run) queues() (queues []string) {
	for each := &r.settings; each != nil; each = each.Beside {
		queues = slices.AppendSeq(queues, maps.Keys(each.Queues))
	}
	return queues
}

// rest waits until all jobs have been enqueued and none is under way any more, or until it is broken off.
func (r *run) rest(breakOff <-chan struct{}) {
	r.Helper()
	for began := time.Now(); ; {
		synctest.Wait() // nothing moves from one set to another between two looks
		left := r.underWay()
		select {
		case <-r.produced:
			if len(left) == 0 {
				return
			}
		default:
		}
		if time.Since(began) > restLimit {
			r.Errorf("after %v these are under way still: %v", restLimit, left)
			return
		}
		select {
		case <-breakOff:
			return
		case <-time.After(time.Second):
		}
	}
}

// underWay returns the tasks that asynq has in its sets, except those in the archive.
func (r *run) underWay() (all []string) {
	for _, queue := range r.queues() {
		prefix := "asynq:{" + queue + "}:"
		for _, list := range []string{"pending", "active"} {
			all = append(all, within(list, queue, r.list(queue, list))...)
		}
		for _, set := range []string{"lease", "scheduled", "retry"} {
			ids, _ := r.m.ZMembers(prefix + set)
			all = append(all, within(set, queue, ids)...)
		}
	}
	return all
}

// list returns the tasks in one of asynq's lists, the next one last.
func (r *run) list(queue, list string) []string {
	key := "asynq:{" + queue + "}:" + list
	if !r.m.Exists(key) { // nearly always
		return nil
	}
	return r.client.LRange(context.Background(), key, 0, -1).Val()
}

func within(set, queue string, ids []string) []string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = set + " " + queue + "/" + id
	}
	return names
}

// archived returns the tasks in the archive.
func (r *run) archived() (all []string) {
	for _, queue := range r.queues() {
		ids, _ := r.m.ZMembers("asynq:{" + queue + "}:archived")
		for _, id := range ids {
			all = append(all, queue+"/"+id)
		}
	}
	return all
}
