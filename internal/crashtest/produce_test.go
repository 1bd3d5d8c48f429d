package crashtest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
)

// ofProducer begins the names of the steps of the producer.
const ofProducer = "produce/"

// producerRestart is how long after the end of a producer the next one starts.
const producerRestart = 2 * time.Second

// producer is the process that enqueues the jobs of a scenario. It can be stopped.
type producer struct {
	tap   *tap
	queue *delayqueue.Queue
	tasks *asynq.Client
	next  int           // the job that it is at, or comes to
	done  chan struct{} // closed when it has returned
}

// hire starts a producer that begins with one of the jobs.
func (r *run) hire(hook *tap, next int, began time.Time) *producer {
	client := redistest.VirtualClient(r.T, r.m, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	client.AddHook(hook)
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		r.Fatal(err)
	}
	p := &producer{tap: hook, queue: queue, tasks: asynq.NewClientFromRedisClient(client), next: next, done: make(chan struct{})}
	hook.stop = func() { r.doubt(p) }
	if r.fault.lives() {
		hook.found = func(redis.Cmder) { r.doubt(p) }
	}
	r.producers = append(r.producers, p)
	go func() {
		defer close(p.done)
		for ; p.next < len(r.jobs) && !hook.isDead(); p.next++ {
			time.Sleep(r.jobs[p.next].At - time.Since(began))
			r.enqueue(p, r.jobs[p.next])
			if hook.isDead() {
				return
			}
		}
	}()
	return p
}

// end lets go of everything, of a stopped producer too.
func (p *producer) end() {
	close(p.tap.over)
	<-p.done
	_ = p.queue.Close()
}

// enqueue enqueues a job, as its kind is.
func (r *run) enqueue(p *producer, j job) {
	payload, err := json.Marshal(j)
	if err != nil {
		r.Error(err)
		return
	}
	opts := []asynq.Option{asynq.TaskID(j.ID), asynq.MaxRetry(j.Retries)}
	if j.InLine {
		r.ledger.call(j)
		_, err = p.queue.Enqueue(r.Context(), j.keys()[0], "job", payload, nil, opts...)
	} else {
		_, err = p.tasks.Enqueue(asynq.NewTask("job", payload), opts...)
	}
	switch {
	case p.tap.isDead():
	case err != nil && (!errors.Is(err, asynq.ErrTaskIDConflict) || !r.mayBeThere(j)):
		r.Error(err)
	case j.InLine:
		r.ledger.called(j)
	}
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
	next := first.next
	if r.fault == before {
		next++
	}
	<-r.hire(newTap(r.m, spot{}, before), next, began).done
}

// doubt notes which job a producer is at when a fault is in its way.
func (r *run) doubt(p *producer) {
	r.unsure = r.jobs[p.next].ID
	switch {
	case p.tap.fault != before: // it may be done by the time at which it is enqueued again
		r.again = append(r.again, r.unsure)
	case p.tap.at.name != "join": // which comes last
		r.lost = r.unsure
	}
}
