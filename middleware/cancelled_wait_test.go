package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// inTheSlot are strategies with which tasks wait in their slots.
var inTheSlot = map[string]middleware.Strategy{
	"wait":     middleware.Wait{Max: time.Minute},
	"in order": middleware.Wait{Max: time.Minute}.Then(middleware.Requeue{Order: middleware.FIFO}),
}

// asynq counts a run that was cancelled as a failure, and archives a task on its last attempt.
func TestACancelledWaitUsesNoRetry(t *testing.T) {
	t.Parallel()
	for name, strategy := range inTheSlot {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				ran := make(chan struct{}, 1)
				r.serve(r.options(strategy), asynq.Config{Concurrency: 4, TaskCheckInterval: lookSeldom}, func(context.Context, *asynq.Task) error {
					ran <- struct{}{}
					return nil
				})
				<-time.After(time.Second) // asynq listens to cancellations by then
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
				r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
				<-time.After(100 * time.Millisecond)
				if err := r.inspect.CancelProcessing(task.ID); err != nil {
					r.Fatal(err)
				}
				if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 0 {
					r.Errorf("it is %+v", info)
				}
				r.events.await(r, 1, parked)
				r.giveBack(lease)
				receive(r.T, ran)
				r.gone(task)
				if info, err := r.inspect.GetQueueInfo("default"); err != nil || info.FailedTotal != 0 || info.ProcessedTotal != 1 {
					r.Errorf("asynq has counted %+v, %v", info, err)
				}
			})
		})
	}
}
