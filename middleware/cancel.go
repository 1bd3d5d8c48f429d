package middleware

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// CancelledError is the cause of a handler's context when its task was cancelled by a person (inspect.Inspector.Cancel) or superseded
// by another task ([Supersede]). The lease of the task's keys stays valid until the handler returns, so that it can clean up. If the handler then returns an error, the task ends as
// Outcome says, and uses up no retry. If the handler succeeds, or has called Lease.MarkCommitted, the task is done.
type CancelledError struct {
	// By is who has cancelled the task, and Why the reason.
	By, Why string
	// Next is the task that has superseded it; empty if a person has cancelled it.
	Next delayqueue.Task
	// Outcome is [Archive] or [Discard].
	Outcome Outcome
	// Err is what the handler has returned, unless that is the cause or the end of its context. It is not unwrapped.
	Err error
}

// Error says who has cancelled the task, and why, and what the handler has returned.
func (e *CancelledError) Error() string {
	text := line.Cancellation{By: e.By, Why: e.Why}.String()
	if e.Err != nil {
		text += "; the handler returned: " + e.Err.Error()
	}
	return text
}

// Unwrap returns the asynq sentinel error that causes the outcome.
func (e *CancelledError) Unwrap() error {
	if e.Outcome == Discard {
		return asynq.RevokeTask
	}
	return asynq.SkipRetry
}

// cancellable returns a context that ends with a [CancelledError] when the task is cancelled or superseded.
func (r *run) cancellable(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	running, end := context.WithCancelCause(ctx)
	r.own.end, r.superseding = end, &r.own
	r.active.OnCancel(func(c line.Cancellation) {
		e := &CancelledError{By: c.By, Why: c.Why}
		if c.Discard {
			e.Outcome = Discard
		}
		end(e)
	})
	return running, end
}

// cancelled returns the error of a run whose task was cancelled or superseded, and err otherwise. running is the context of the run, and
// ctx that of asynq, which ignores the error of a run that it has ended itself. lease is that of the keys, or nil.
func (r *run) cancelled(ctx, running context.Context, lease *locking.Lease, err error) error {
	cause, ok := errors.AsType[*CancelledError](context.Cause(running))
	if !ok || ctx.Err() != nil {
		return err
	}
	tooLate := lease != nil && errors.Is(lease.Err(), locking.ErrLost)
	if lease.Committed() || err == nil && !tooLate {
		return nil
	}
	r.active.Withdraw() // it does not wait any more
	ended, e := Event{Kind: Ended}, *cause
	if ran := lease != nil || r.withoutLock; !ran {
		ended.Waited = r.waited()
	} else if !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		e.Err = err
	}
	ended.Err = &e
	r.observe(ctx, &ended)
	return &e
}
