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

// ErrKey reports that a task has no usable key. It will not have one later either, so the task is archived. The
// error that matches it is a [KeyError].
var ErrKey = errors.New("middleware: no usable key")

// ConflictError reports that a task did not run because another holder had one of its keys. It matches
// [locking.ErrHeld] and the asynq sentinel that brings its Outcome about.
type ConflictError struct {
	Task   delayqueue.Task
	Type   string
	Key    string
	Holder locking.Holder
	// Held is how long the holder had had the key, by the clocks of this process and the holder; 0 when unknown.
	Held time.Duration

	// Outcome is what became of the task, and Limit the limit that ended its waiting, if one did.
	Outcome Outcome
	Limit   delayqueue.Limit

	// Conflicts is how often the task was refused since its handler last ran, and Waited how long ago the first refusal
	// was.
	Conflicts int
	Waited    time.Duration

	// RetryAfter is the rest of the holder's lease, which the holder may renew; 0 when its end is not known. When
	// Outcome is Park, RetryAfter is the time until the task tries again by itself, if no release wakes it before.
	RetryAfter time.Duration
}

// Error names the key, its holder, and when to try again.
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

// headline begins the text of the error: it tells a conflict of this outcome from other errors that asynq keeps as
// text.
func (e *ConflictError) headline() string { return fmt.Sprintf("middleware: %s: key ", e.Outcome) }

// Is reports whether target is [locking.ErrHeld].
func (e *ConflictError) Is(target error) bool { return target == locking.ErrHeld }

// Unwrap returns the asynq sentinel that brings the outcome about, or nil.
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

// Unwrap returns the cause, and the asynq sentinel that has the task archived.
func (e *KeyError) Unwrap() []error { return []error{e.Err, asynq.SkipRetry} }

// unavailableError reports that the locks could not be reached. It is not a failure of the task, uses up no retry, and
// the task is tried again after the delay, as long as the Redis of the tasks can be reached.
type unavailableError struct {
	err   error // the last one of the attempts
	delay time.Duration
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("middleware: the lock servers cannot be reached; trying again in %v: %v", e.delay, e.err)
}

func (e *unavailableError) Unwrap() error { return e.err }
