package items

import (
	"context"
	"time"
)

// Skip returns an error for Handler.Run to return: the item is not tried again, and counts as skipped, not as failed.
// The reason may be nil.
func Skip(err error) error { return &skipError{err} }

type skipError struct{ err error }

func (e *skipError) Error() string {
	if e.err == nil {
		return "skipped"
	}
	return "skipped: " + e.err.Error()
}

func (e *skipError) Unwrap() error { return e.err }

// RetryAfter returns an error for Handler.Run to return: the item fails, and is tried again no earlier than after
// delay. When all failed items have such an error, the task is retried after the shortest of their delays, instead of
// the delay of the server's RetryDelayFunc. asynq counts whole seconds. The reason may be nil.
func RetryAfter(err error, delay time.Duration) error { return &retryError{err, delay} }

type retryError struct {
	err   error
	delay time.Duration
}

func (e *retryError) Error() string {
	if e.err == nil {
		return "again in " + e.delay.String()
	}
	return e.err.Error()
}

func (e *retryError) Unwrap() error { return e.err }

type indexKey struct{}

// Index returns the index of the item that runs with ctx. Together with the ID of the task (asynq.GetTaskID) it
// identifies the item permanently: record both with the item's effect, so that it takes effect exactly once. Index
// returns -1 for any other context.
func Index(ctx context.Context) int {
	if i, ok := ctx.Value(indexKey{}).(int); ok {
		return i
	}
	return -1
}
