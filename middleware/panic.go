package middleware

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// errBroken stands for the end of a run whose code has panicked or has ended its goroutine. asynq makes the error that the task gets.
var errBroken = errors.New("middleware: the run did not return")

// abandon gives back all that a run has, because code of the user's has panicked or has ended its goroutine (runtime.Goexit). It recovers
// from nothing: asynq reports the panic with its stack, and retries or archives the task as after any panic of a handler.
func (r *run) abandon(ctx context.Context) {
	r.run.Withdraw() // asynq counts a failure, whatever was to become of the task
	r.stopWaiting(ctx, false)
	switch {
	case r.lease != nil:
		_ = r.giveBack(ctx, r.lease, r.staysInLine(ctx, true, nil))
	case r.order != NextFirst && r.comesBack(errBroken):
		// It comes back, and its place waits for it.
	default:
		r.leave(ctx)
	}
}

// observe tells the observer of an event of this run. An observer that panics is logged and changes nothing: it is there to watch.
func (r *run) observe(ctx context.Context, e Event) {
	if r.observer == nil {
		return
	}
	defer func() {
		if x := recover(); x != nil {
			r.log.ErrorContext(ctx, "the observer panicked; the task goes on", "event", string(e.Kind), "task", r.id.String(),
				"panic", fmt.Sprint(x), "stack", string(debug.Stack()))
		}
	}()
	e.At, e.Task, e.Type, e.Keys = time.Now(), r.id, r.task.Type(), r.keys
	r.observer.Observe(ctx, e)
}
