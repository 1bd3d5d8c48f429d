package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

func TestWaitingIsToldFromTheFirstRefusal(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]middleware.Requeue{
		"parked": {Delay: 10 * time.Second}, "in order": {Delay: 10 * time.Second, Order: middleware.FIFO},
		"elsewhere": {Delay: 10 * time.Second, Queue: "slow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				r.serve(r.options(strategy), asynq.Config{Queues: map[string]int{"default": 1, "slow": 1}}, func(context.Context, *asynq.Task) error { return nil })
				r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
				first := r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })[0].At
				for _, kind := range []middleware.EventKind{middleware.Ended, middleware.Parked} {
					for i, e := range r.events.await(r, 3, func(e middleware.Event) bool { return e.Kind == kind }) {
						waited := e.Waited
						if conflict, ok := e.Err.(*middleware.ConflictError); ok { //nolint:errorlint // an event carries the error itself
							waited = conflict.Waited
							if conflict.Conflicts != i+1 {
								r.Errorf("conflict %d is number %d", i+1, conflict.Conflicts)
							}
						}
						r.about(string(kind), waited, e.At.Sub(first))
					}
				}
				r.giveBack(lease)
				e := r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Acquired })[0]
				r.about("acquired", e.Waited, e.At.Sub(first))
			})
		})
	}
}

// about fails the test unless an event tells how long a task has waited, within a second.
func (r *rig) about(event string, got, want time.Duration) {
	r.Helper()
	if got < want-time.Second || got > want+time.Second {
		r.Errorf("%s: it waited %v, want %v", event, got, want)
	}
}

func TestATaskThatNeverWaitedTellsOfNoWaiting(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.serve(r.options(nil), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"})
		if e := r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Acquired })[0]; e.Waited != 0 {
			r.Errorf("it waited %v", e.Waited)
		}
	})
}

// The locks are on another Redis than the tasks. A key that is released between the refusal and the park has nothing
// to wake then.
func TestAKeyThatIsFreedBeforeTheParkWakesItsTask(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]middleware.Order{"best effort": middleware.BestEffort, "FIFO": middleware.FIFO, "strict FIFO": middleware.StrictFIFO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				opts := r.options(middleware.Requeue{Delay: time.Hour, Order: order})
				opts.RedisKeys = nil
				opts.Locker = &hooked{Locker: r.locker, after: func(attempt int, _ error) {
					if attempt == 1 {
						r.giveBack(lease)
					}
				}}
				ran := make(chan time.Time, 1)
				r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
					ran <- time.Now()
					return nil
				})
				began := time.Now()
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
				if took := receive(r.T, ran).Sub(began); took > time.Second {
					r.Errorf("it ran after %v, by its timer", took)
				}
				r.gone(task)
				if n := len(r.events.await(r, 1, parked)); n != 1 {
					r.Errorf("it was parked %d times", n)
				}
			})
		})
	}
}
