package taskrun

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// ItemsError is what a key function returns as its error to say that the task is made of items. The middleware then
// checks the keys, sets Run and calls the handler, under the lock of Keys if Locked is set.
type ItemsError struct {
	Locked bool
	Keys   []string   // held for the whole run
	Of     [][]string // the keys of each item
	Run    Run
}

// Error is the text of the error for a middleware that does not know items.
func (e *ItemsError) Error() string {
	return fmt.Sprintf("the task has %d items with keys of their own", len(e.Of))
}

// Run is the run of a task that is made of items. It is valid until the handler returns. Acquire and Item.Release are
// safe for concurrent use.
type Run interface {
	// Acquire makes one attempt to lock the keys of an item. Exactly one of its results is not nil.
	Acquire(ctx context.Context, keys []string) (Item, *locking.HeldError, error)
	// AwaitRedis waits for a moment after an error of Acquire that may pass. It returns the error that ends the run if the
	// error will not pass, or Redis has been away for too long. After an attempt that was answered, call it with nil.
	AwaitRedis(ctx context.Context, err error) error
	// Park has the task wait for keys that were refused, the first since that time, and returns the error that ends the
	// run. The release of any of the first few keys brings it back.
	Park(ctx context.Context, held []*locking.HeldError, refused time.Time) error
	// Pause has the task run again after a delay without using up a retry, and returns the error that ends the run.
	Pause(delay time.Duration, cause error) error
	// ForwardWake forwards a wake that the task has not used. Call it when the run ends and the task is not parked.
	ForwardWake(ctx context.Context)
	// Stopping is closed when the server begins to shut down and the run should end by Pause; nil if it must go on.
	Stopping() <-chan struct{}
	// Attempt is the retry count of the task. IsLast reports whether asynq archives the task after a failure.
	Attempt() int
	IsLast() bool
	Logger() *slog.Logger // never nil
}

// Item is an item whose keys are locked.
type Item interface {
	Lease() *locking.Lease
	// Release releases the keys and wakes the next task of each. The error matches [locking.ErrLost]; it is nil if the
	// lease was good until then. A lease that has merely expired is forgiven if the item has succeeded: see
	// lockaccess.Access.
	Release(ctx context.Context, succeeded bool) error
}

// PausedError ends a run that has not failed: the task runs again after Delay and uses up no retry.
type PausedError struct {
	Err   error
	Delay time.Duration
}

func (e *PausedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PausedError) Unwrap() error { return e.Err }

// DelayedError is a failure after which asynq retries the task when Delay has passed, whatever the server's
// RetryDelayFunc returns.
type DelayedError struct {
	Err   error
	Delay time.Duration
}

func (e *DelayedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *DelayedError) Unwrap() error { return e.Err }
