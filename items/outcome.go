package items

import (
	"context"
	"time"
)

// Skip returns an error by which the run of an item ends it for good: the item is not tried again, and counts as
// skipped, not as failed.
func Skip(err error) error { return &skipError{err} }

type skipError struct{ err error }

func (e *skipError) Error() string { return "skipped: " + e.err.Error() }

func (e *skipError) Unwrap() error { return e.err }

// RetryAfter returns an error by which the run of an item fails, and is tried again no earlier than the delay. When all
// failed items say so, the task is retried after the shortest of their delays instead of that of the server's
// RetryDelayFunc. asynq counts whole seconds.
func RetryAfter(err error, delay time.Duration) error { return &retryError{err, delay} }

type retryError struct {
	err   error
	delay time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }

func (e *retryError) Unwrap() error { return e.err }

type indexKey struct{}

// Index returns the index of the item that the context of its run is for. Together with the ID of the task
// (asynq.GetTaskID) it names the item for good: record both with the item's effect to have it exactly once. It is -1 for
// any other context.
func Index(ctx context.Context) int {
	if i, ok := ctx.Value(indexKey{}).(int); ok {
		return i
	}
	return -1
}
