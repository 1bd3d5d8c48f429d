package middleware

import (
	"context"
	"errors"
)

// errBroken stands for the result of a run whose code has panicked or ended its goroutine. asynq makes the error that
// the task gets.
var errBroken = errors.New("middleware: the run did not return")

// abandon releases everything that a run has, because a user's code has panicked or has ended its goroutine
// (runtime.Goexit). It does not recover: asynq reports the panic with its stack, and retries or archives the task as
// after any panic of a handler.
func (r *run) abandon(ctx context.Context) {
	r.active.Withdraw() // asynq counts a failure, whatever the strategy had decided
	r.stopWaiting(ctx, false)
	switch {
	case r.lease != nil:
		_ = r.giveBackNow(ctx, r.lease, r.seq.stays(ctx, true, nil))
	case r.seq.returns(errBroken):
		// The task comes back and keeps its position.
	default:
		r.leave(ctx)
	}
}
