package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// IsFailure returns a function for the IsFailure field of asynq's Config: a task that waits for a key, or for lock servers
// that cannot be reached, has not failed and uses up no retry. Every other error is next's to judge; all are failures
// when next is nil.
func IsFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if _, ok := waits(err); ok {
			return false
		}
		if next != nil {
			return next(err)
		}
		return err != nil
	}
}

// RetryDelay returns a function for the RetryDelayFunc field of asynq's Config: it tells when a waiting task tries again
// although nobody woke it. Every other error is next's to judge, asynq.DefaultRetryDelayFunc when next is nil.
func RetryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if next == nil {
		next = asynq.DefaultRetryDelayFunc
	}
	return func(n int, err error, task *asynq.Task) time.Duration {
		if delay, ok := waits(err); ok {
			return delayqueue.WholeSeconds(time.Now(), delay)
		}
		return next(n, err, task)
	}
}

// ErrorHandler returns a handler for the ErrorHandler field of asynq's Config: it keeps tasks that wait from next, so that
// an error tracker does not fill up with conflicts. It returns nil when next is nil.
func ErrorHandler(next asynq.ErrorHandler) asynq.ErrorHandler {
	if next == nil {
		return nil
	}
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if _, waiting := waits(err); !waiting {
			next.HandleError(ctx, task, err)
		}
	})
}

// waits reports whether err is that of a task that goes on waiting, and for how long.
func waits(err error) (time.Duration, bool) {
	if conflict, ok := errors.AsType[*ConflictError](err); ok && conflict.Outcome == Parked {
		return conflict.RetryAfter, true
	}
	if unavailable, ok := errors.AsType[*UnavailableError](err); ok {
		return unavailable.Delay, true
	}
	return 0, false
}
