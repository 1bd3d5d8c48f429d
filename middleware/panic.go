package middleware

import (
	"context"
	"errors"

	"github.com/railtoken/railtoken/delayqueue"
)

// errBroken stands for the end of a run whose code has panicked or has ended its goroutine. asynq makes the error that
// the task gets.
var errBroken = errors.New("middleware: the run did not return")

// abandon gives back all that a run has, because code of the user's has panicked or has ended its goroutine
// (runtime.Goexit). It recovers from nothing: asynq reports the panic with its stack, and retries or archives the task
// as after any panic of a handler.
func (r *run) abandon(ctx context.Context) {
	r.active.Withdraw() // asynq counts a failure, whatever was to become of the task
	r.stopWaiting(ctx, false)
	switch {
	case r.lease != nil:
		_ = r.giveBack(ctx, r.lease, r.ordering.stays(ctx, true, nil))
	case r.ordering.returns(errBroken):
		// It comes back, and keeps its position.
	default:
		r.leave(ctx)
	}
}

// observe tells the observer of an event of this run.
func (r *run) observe(ctx context.Context, e Event) {
	if e.Task == (delayqueue.Task{}) {
		e.Task = delayqueue.Task(r.id)
	}
	e.Type, e.Keys = r.task.Type(), r.keys
	tell(ctx, r.Observer, r.Logger, e)
}
