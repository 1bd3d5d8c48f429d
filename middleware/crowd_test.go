package middleware_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// asynq keeps only so many archived tasks of a queue and deletes the others: a burst that was archived would be lost.
func TestATaskThatFindsTheWaitersFullRuns(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]delayqueue.Limits{"waiters": {Waiters: 1}, "total": {Total: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 6
				lease := r.hold("order:1")
				strategy := parkAlways()
				strategy.Limits = bounds
				s := &script{}
				cfg := asynq.Config{Concurrency: 2, TaskCheckInterval: time.Second}
				r.serve(r.options(strategy), cfg, s.handle)
				for n := range tasks {
					r.enqueue(payload{Key: "order:1", N: n}, asynq.MaxRetry(n%2)) // every second one goes by the delay queue
				}
				<-time.After(2 * time.Minute) // they try again, and later each time
				r.giveBack(lease)
				for began := time.Now(); time.Since(began) < 15*time.Minute; <-pause(began) {
					if len(s.saw()) >= tasks {
						break
					}
				}
				<-time.After(time.Second) // what asynq writes after a handler has returned
				if got := slices.Sorted(slices.Values(s.saw())); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
					r.Errorf("%v ran", got)
				}
				for queue := range cfg.Queues {
					if info, err := r.inspect.GetQueueInfo(queue); err != nil || info.Archived > 0 || info.Size > 0 {
						r.Errorf("queue %s: %+v, %v; want nothing archived or left", queue, info, err)
					}
				}
			})
		})
	}
}

// In order, a task without a position in the sequence would hold up all behind it until its timer ends.
func TestInOrderFullWaitersDelayNoTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		strategy := middleware.Requeue{Order: middleware.FIFO, Limits: delayqueue.Limits{Waiters: 1, Total: 1}}
		s := &script{steps: func(_ context.Context, n, _ int) error {
			if n == 1 {
				<-time.After(10 * time.Second)
			}
			return nil
		}}
		r.serve(r.options(strategy), asynq.Config{Concurrency: 2}, s.handle)
		r.queued("order:1", 1, 6, asynq.MaxRetry(3))
		s.sees(r, 12*time.Second, 1, 2, 3, 4, 5, 6)
	})
}
