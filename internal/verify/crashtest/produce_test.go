package crashtest_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// ofProducer begins the names of the steps of the producer.
const ofProducer = "produce/"

// producerRestart is how long after the end of a producer the next one starts.
const producerRestart = 2 * time.Second

// producer is the process that enqueues the jobs of a scenario. It can be stopped.
type producer struct {
	tap     *tap
	tasks   *attach.Producer
	locks   *locking.Single
	plainly *asynq.Client // without keys
	next    atomic.Int64  // the job that it is at, or comes to
	done    chan struct{} // closed when it has returned
}

// hire starts a producer that begins with one of the jobs.
func (r *run) hire(hook *tap, next int, began time.Time) *producer {
	client := connectTasks(r.T, r.m, r.Cluster, hook)
	locks := redistest.VirtualClient(r.T, r.m)
	locks.AddHook(hook)
	single, err := locking.NewSingle(locks, locking.SingleOptions{})
	if err != nil {
		r.Fatal(err)
	}
	tasks, err := attach.NewProducer(client, attach.ProducerOptions{Locker: single})
	if err != nil {
		r.Fatal(err)
	}
	p := &producer{tap: hook, tasks: tasks, locks: single, plainly: asynq.NewClientFromRedisClient(client), done: make(chan struct{})}
	p.next.Store(int64(next))
	hook.stop = func() { r.doubt(p) }
	if r.fault.lives() {
		hook.found = func(redis.Cmder) { r.doubt(p) }
	}
	r.producers = append(r.producers, p)
	go func() {
		defer close(p.done)
		for ; next < len(r.jobs) && !hook.isDead(); p.next.Add(1) {
			time.Sleep(r.jobs[next].At - time.Since(began))
			r.enqueue(p, r.jobs[next])
			if hook.isDead() {
				return
			}
			next++
		}
	}()
	return p
}

// end lets go of everything, of a stopped producer too.
func (p *producer) end() {
	close(p.tap.over)
	<-p.done
	_ = p.tasks.Close()
	_ = p.locks.Close()
}

// enqueue enqueues a job, as its kind is.
func (r *run) enqueue(p *producer, j job) {
	payload, err := json.Marshal(j)
	if err != nil {
		r.Error(err)
		return
	}
	opts := []asynq.Option{asynq.TaskID(j.ID), asynq.MaxRetry(j.Retries)}
	call := func() {
		switch {
		case j.InLine:
			r.ledger.call(j)
			_, err = (*line.Engine)(p.tasks.Queue()).EnqueueInOrder(r.Context(), j.keys()[0], "job", payload, nil, opts...)
		case j.Waits:
			// Its timer is short: when its producer stops at once, the holder of the key does not know that it waits.
			waits := slices.Concat(opts, []asynq.Option{attach.Keys(j.keys()...), attach.WhenHeld(middleware.Requeue{Delay: 2 * time.Second})})
			_, err = p.tasks.EnqueueContext(r.Context(), asynq.NewTask("job", payload), waits...)
		case j.Record:
			_, err = p.tasks.EnqueueContext(r.Context(), asynq.NewTask("job", payload), append(opts, attach.Keys(j.keys()...))...)
		default:
			_, err = p.plainly.Enqueue(asynq.NewTask("job", payload), opts...)
		}
	}
	call()
	if r.fault == lost && err != nil && r.mayBeThere(j) {
		call()
	}
	switch {
	case p.tap.isDead():
	case err != nil && (!errors.Is(err, asynq.ErrTaskIDConflict) || !r.mayBeThere(j)):
		r.Error(err)
	case j.InLine:
		r.ledger.called(j)
	}
}

// tidiesUp reports whether the fault is in the way of a producer that takes out of line a task that was done before it stood there, and wakes
// who waits behind it; or in the way of a task that takes its place among the waiters on a Cluster: sent again late, it is there although it runs, so that it keeps its
// place in line until the next one finds it to be gone.
func (r *run) tidiesUp() bool {
	return r.at.name == ofProducer+"sequence_remove" || r.at.name == ofProducer+"wake task" || r.Cluster && r.at.name == "join"
}

// mayBeThere reports whether a job may have been enqueued before.
func (r *run) mayBeThere(j job) bool { return j.ID == r.unsure }

// produce has all jobs enqueued. When the producer is stopped the next one repeats the job that the first one was at, if the fault was after the
// step, and leaves it out, if it was before: such a job is not there, or it is, and has no place in line before it runs.
func (r *run) produce() {
	defer close(r.produced)
	began := time.Now()
	hook := newTap(r.m, spot{}, r.fault)
	if name, ok := strings.CutPrefix(r.at.name, ofProducer); ok {
		hook.at = spot{name, r.at.nth}
	}
	first := r.hire(hook, 0, began)
	select {
	case <-first.done:
		return
	case <-hook.dead:
	}
	time.Sleep(producerRestart)
	next := int(first.next.Load())
	if r.fault == before {
		next++
	}
	<-r.hire(newTap(r.m, spot{}, before), next, began).done
}

// doubt notes which job a producer is at when a fault is in its way. It may be at none any more, and take care of one that has ended.
func (r *run) doubt(p *producer) {
	next := int(p.next.Load())
	if next == len(r.jobs) {
		return
	}
	r.unsure = r.jobs[next].ID
	switch {
	case p.tap.fault != before: // it may be done by the time at which it is enqueued again
		r.again = append(r.again, r.unsure)
	case r.jobs[next].Waits && r.m.Exists("asynq:{default}:t:"+r.unsure):
	case p.tap.at.name != "join" || r.jobs[next].Waits: // which comes last in line
		r.lost = r.unsure
	}
}
