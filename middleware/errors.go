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

var (
	// ErrConflict reports that another holder had a key of the task, so that its handler did not run. The error that
	// matches it is a [ConflictError].
	ErrConflict = errors.New("middleware: another task has the key")

	// ErrKey reports that a task has no usable key. It will not have one later either, so the task is archived. The
	// error that matches it is a [KeyError].
	ErrKey = errors.New("middleware: no usable key")
)

// Outcome is what becomes of a task in conflict.
type Outcome int

// The outcomes. A strategy may choose the first three for a task that fails; the others are what became of one that waits.
const (
	// Archive puts the task in asynq's archive, with the error, from where it can be run again by hand. asynq keeps the
	// newest 10 000 tasks of a queue there, for 90 days.
	Archive Outcome = iota
	// Retry counts a failure: asynq retries the task by its own rules, and archives it after the last attempt.
	Retry
	// Discard deletes the task. Nothing but an event and a line in asynq's log tells of it.
	Discard
	// Parked says that the task waits in the retry set of its queue, or of the one that the strategy names. No retry is used up, also not the last.
	Parked
	// NotEnqueued says that a [Producer] has not enqueued the task.
	NotEnqueued
)

// String returns the outcome in one word.
func (o Outcome) String() string {
	if o < Archive || o > NotEnqueued {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return [...]string{"archived", "failed", "discarded", "parked", "not enqueued"}[o]
}

// ConflictError says why a task did not run: another holder had one of its keys. It matches [ErrConflict] and
// [locking.ErrHeld], and the asynq sentinel that brings its Outcome about.
type ConflictError struct {
	Task   delayqueue.Task
	Type   string
	Key    string
	Holder locking.Holder
	// Held is for how long the holder had had the key then, by this process's clock and the holder's; 0 when unknown.
	Held time.Duration

	// Outcome is what became of the task, and Bound the bound that ended its waiting, if one did.
	Outcome Outcome
	Bound   delayqueue.Limit

	// Conflicts is how often the task was refused since its handler last ran, and Waited how long ago the first time was.
	Conflicts int
	Waited    time.Duration

	// RetryAfter is when trying again makes sense: a parked task does so by itself.
	RetryAfter time.Duration
}

// Error names the key, its holder, and when to try again.
func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%q is held by %s", e.headline(), e.Key, e.Holder)
	if e.Bound != delayqueue.NoLimit {
		fmt.Fprintf(&b, "; bound on %s reached after %d conflicts in %v", e.Bound, e.Conflicts, e.Waited.Round(time.Millisecond))
	}
	if e.Outcome != Parked {
		fmt.Fprintf(&b, "; try again in %v", e.RetryAfter.Round(time.Millisecond))
	}
	return b.String()
}

// headline begins the text of the error: it tells a conflict of this outcome from other errors that asynq keeps as text.
func (e *ConflictError) headline() string { return fmt.Sprintf("middleware: %s: key ", e.Outcome) }

// Is reports whether target is [ErrConflict] or [locking.ErrHeld].
func (e *ConflictError) Is(target error) bool {
	return target == ErrConflict || target == locking.ErrHeld
}

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

// KeyError says why no key could be found in a task. It matches [ErrKey] and asynq.SkipRetry.
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

// UnavailableError says that the locks could not be reached. It is not a failure of the task, uses up no retry, and the task
// is tried again after Delay: as long as the Redis of the tasks can be reached (see the package).
type UnavailableError struct {
	Err   error
	Delay time.Duration
}

// Error tells what failed.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("middleware: the lock servers cannot be reached; trying again in %v: %v", e.Delay, e.Err)
}

// Unwrap returns the last error of the attempts.
func (e *UnavailableError) Unwrap() error { return e.Err }
