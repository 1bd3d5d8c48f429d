package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

func TestAFailedHeadThatIsTakenAwayFreesItsKey(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(r *rig, t delayqueue.Task) error{
		"deleted":  func(r *rig, t delayqueue.Task) error { return r.inspect.DeleteTask(t.Queue, t.ID) },
		"archived": func(r *rig, t delayqueue.Task) error { return r.inspect.ArchiveTask(t.Queue, t.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				s := &script{steps: func(_ context.Context, n, _ int) error {
					if n == 1 {
						return errors.New("it failed")
					}
					return nil
				}}
				cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 24 * time.Hour }}
				r.serve(r.options(middleware.Requeue{Order: middleware.StrictFIFO}), cfg, s.handle)
				r.queued("order:1", 1, 3, asynq.MaxRetry(3))
				head := delayqueue.Task{Queue: "default", ID: "order:1-1"}
				r.settled(head, asynq.TaskStateRetry)
				r.events.await(r, 2, parked)
				<-time.After(20 * time.Second) // the timers of those behind it end in 35 s
				if err := take(r, head); err != nil {
					r.Fatal(err)
				}
				s.sees(r, time.Second+100*time.Millisecond, 1, 2, 3)
			})
		})
	}
}
