package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// The timer of a parked task is otherwise that of its key's lease, and of a task far behind many minutes.
func TestAWaitingTaskEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		defer r.giveBack(lease)
		ended := make(chan error, 1)
		opts := r.options(middleware.Requeue{Delay: time.Hour})
		r.serve(opts, asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			ended <- err
		})}, func(context.Context, *asynq.Task) error { return nil })
		deadline := time.Now().Add(7 * time.Second)
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0), asynq.Deadline(deadline))
		r.events.await(r, 1, parked)
		err := receive(t, ended)
		if late := time.Since(deadline); late > 2*time.Second || late < -time.Second {
			r.Errorf("it has ended %v after its deadline: %v", late, err)
		}
		r.settled(task, asynq.TaskStateArchived)
	})
}
