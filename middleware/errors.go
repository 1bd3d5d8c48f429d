package middleware

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// ErrKey reports that a task has no usable key. Retrying would not help, so the task is archived. The error that
// matches ErrKey is a [KeyError].
var ErrKey = errors.New("middleware: no usable key")

// ConflictError reports that a task did not run because another holder had one of its keys. It matches
// [locking.ErrHeld] and the asynq sentinel error that causes its Outcome.
type ConflictError struct {
	// Task is empty when Outcome is NotEnqueued.
	Task   delayqueue.Task
	Type   string
	Key    string
	Holder locking.Holder
	// Held is how long the holder had held the key, by the clocks of this process and of the holder; 0 if unknown.
	Held time.Duration

	// Outcome is what happened to the task. Limit is the limit that ended its wait, if any.
	Outcome Outcome
	Limit   delayqueue.Limit

	// If the task is parked or at a limit, Conflicts is the number of runs that have ended in a conflict since the handler
	// last ran. Otherwise Conflicts is the number of refusals in this run. Waited is the time since the task was first
	// refused after the handler last ran.
	Conflicts int
	Waited    time.Duration

	// RetryAfter is how long the holder's lease lasts if the holder does not renew it; 0 when the end of the lease is not
	// known. When Outcome is Park, RetryAfter is the time until the task tries again by itself, if no release wakes it
	// sooner.
	RetryAfter time.Duration
}

// Error names the key, its holder and, unless the task is parked, the time after which to try again.
func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%q is held by %s", e.headline(), e.Key, e.Holder)
	if e.Limit != delayqueue.NoLimit {
		fmt.Fprintf(&b, "; limit on %s reached after %d conflicts in %v", e.Limit, e.Conflicts,
			e.Waited.Round(time.Millisecond))
	}
	if e.Outcome != Park {
		fmt.Fprintf(&b, "; try again in %v", e.RetryAfter.Round(time.Millisecond))
	}
	return b.String()
}

// headline returns the beginning of the error text. It distinguishes a conflict of this outcome from other errors that
// asynq keeps as text.
func (e *ConflictError) headline() string { return fmt.Sprintf("middleware: %s: key ", e.Outcome) }

// Is reports whether target is [locking.ErrHeld].
func (e *ConflictError) Is(target error) bool { return target == locking.ErrHeld }

// Unwrap returns the asynq sentinel error that causes the outcome, or nil.
func (e *ConflictError) Unwrap() error {
	switch e.Outcome {
	case Archive:
		return asynq.SkipRetry
	case Discard:
		return asynq.RevokeTask
	default:
		return nil
	}
}

// KeyError reports why a task has no usable key. It matches [ErrKey] and asynq.SkipRetry.
type KeyError struct {
	Type string
	Err  error
}

// Error names the task's type and the cause.
func (e *KeyError) Error() string {
	return fmt.Sprintf("middleware: no usable key in a task of type %q: %v", e.Type, e.Err)
}

// Is reports whether target is [ErrKey].
func (e *KeyError) Is(target error) bool { return target == ErrKey }

// Unwrap returns the cause, and the asynq sentinel error that archives the task.
func (e *KeyError) Unwrap() []error { return []error{e.Err, asynq.SkipRetry} }

// unavailableError reports that the locks cannot be reached. The task has not failed and uses up no retry. It is tried
// again after the delay, provided that the Redis of the tasks can be reached.
type unavailableError struct {
	err   error // of the last attempt
	delay time.Duration
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("middleware: the lock servers cannot be reached; trying again in %v: %v", e.delay, e.err)
}

func (e *unavailableError) Unwrap() error { return e.err }

// limitError carries the result of an OnLimit callback to the end of the run.
type limitError struct {
	conflict *ConflictError
	outcome  error
}

func (e *limitError) Error() string { return e.conflict.Error() }
