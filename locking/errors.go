package locking

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/internal/rediswire"
)

var (
	// ErrHeld reports that another holder has a key. Servers that have answered keep nothing of the attempt, so it is safe
	// to try again at once. The error that matches it is a [HeldError].
	ErrHeld = errors.New("locking: key is held")

	// ErrLost reports that a lease can no longer be trusted: another holder may have the key by now. The error that
	// matches it is a [LostError], and is the cause of the lease's context.
	ErrLost = errors.New("locking: lease is lost")

	// ErrUnavailable reports that the servers could not be reached, or cannot serve at the moment, for example because
	// they load their data, fail over, are out of memory, or refuse the user. The attempt was undone as far as possible.
	// Try again later.
	ErrUnavailable = errors.New("locking: not enough servers can be asked")

	// ErrQuarantined reports, in addition to ErrUnavailable, that nodes of a [Redlock] can be reached but may not vote
	// now: they may have forgotten locks, are not masters, or are unfit for locks. The text says why, what to do, and when
	// they are checked again.
	ErrQuarantined = errors.New("locking: servers may not vote")

	// ErrForeign reports that a Redis key of a lock, or of its fence counter, has a value that no lock has. Nothing was
	// taken, and the value is as it was, except that a string in the place of the counter no longer expires.
	ErrForeign = errors.New("locking: another program uses a Redis key of this lock " +
		"(railtoken:lock:{key}, or the same with :fence): delete it, or choose other names with RedisKey")

	// ErrReentrant reports that the caller's context carries a lease of the key (see [NewContext]), so neither an attempt
	// nor a wait could succeed. The lease may come from another Locker on the same servers, such as a second [Gate], or
	// the Locker of the tasks in a handler. [Locker].Acquire, [Wait], [Do] and [Collect] return it. The error that
	// matches it is an [OpError], which names the key. A Locker that does not come from this package refuses with ErrHeld
	// instead.
	ErrReentrant = errors.New("locking: the caller holds the key already: " +
		"use the lease that the context carries (FromContext)")

	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("locking: lease is released")
)

// Holder is what a refused caller can know about the holder of a key.
type Holder struct {
	// Label is the holder's own name; empty when another program holds the key.
	Label string
	// Since is when the holder took the key, by the holder's clock; zero when another program holds the key.
	Since time.Time
	// Fence is the holder's token, for logs. It may be too small with several servers, or after the holder's process
	// has handed the lease off, so do not fence with it. It is 0 when another program holds the key, and while the token
	// is not certain.
	Fence int64
	// Remaining is how long the holder's lease lasts without a renewal; negative if it has no end.
	Remaining time.Duration
}

// String returns the holder as a log shows it, for example
// "worker-2/71/order:audit since 2026-01-02T03:04:05.678Z, 28.8s left".
func (h Holder) String() string {
	var b strings.Builder
	if h.Label == "" {
		b.WriteString("another program")
	} else {
		b.WriteString(h.Label)
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", h.Since.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if h.Remaining < 0 {
		b.WriteString(", with no end")
	} else {
		fmt.Fprintf(&b, ", %v left", h.Remaining.Round(time.Millisecond))
	}
	return b.String()
}

// HeldError names a key that another holder has, and describes that holder. It matches [ErrHeld].
type HeldError struct {
	Key    string
	Holder Holder
}

// Error names the key and its holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("locking: key %q is held by %s", e.Key, e.Holder)
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// foreign makes err match ErrForeign if it says so.
func foreign(err error) error {
	if rediswire.IsForeign(err) {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// OpError is a failed operation on keys. Keys are business data: log only Err where they must not appear.
type OpError struct {
	Op   string // "acquire", "renew" or "release"
	Keys []string
	Err  error
}

// Error names the operation, the keys and the cause.
func (e *OpError) Error() string { return fmt.Sprintf("locking: %s %q: %v", e.Op, e.Keys, e.Err) }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// LossReason is why a lease was lost.
type LossReason string

// The reasons for a loss.
const (
	LossTaken   LossReason = "the key is no longer this holder's on the server"
	LossExpired LossReason = "it could not be renewed within its validity"
	LossMaxHold LossReason = "it was held for MaxHold"
	LossDeposed LossReason = "the key was taken away" // by an operator, or for a task that supersedes it: Err is a DeposedError
)

// LostError names the keys that a holder has lost, and why. It matches [ErrLost].
type LostError struct {
	Keys   []string
	Reason LossReason
	// Err is the error of the last renewal, or a [DeposedError], or attach.ErrSilent, or nil.
	Err error
}

// lossOf returns err as a [LostError] if it matches [ErrLost]: a backend may say no more than that the keys are lost.
func lossOf(keys []string, err error) error {
	if !errors.Is(err, ErrLost) {
		return err
	}
	if _, ok := errors.AsType[*LostError](err); ok {
		return err
	}
	return &LostError{Keys: keys, Reason: LossTaken, Err: err}
}

// Error names the keys and the reason.
func (e *LostError) Error() string {
	msg := fmt.Sprintf("locking: lease of %q is lost: %s", e.Keys, e.Reason)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// DeposedError is the [LostError].Err of a lease whose key was taken away: by an operator (inspect.Inspector.Depose), or because a task
// has superseded the holder (middleware.Supersede) and its Grace is over.
// [errors.AsType] finds it in the cause of the lease's context.
//
// A lease of attach.Attached and worker.Worker ends within milliseconds. Any other lease ends with its next renewal,
// within a third of its TTL.
type DeposedError struct{ By, Why string }

// Error says who has deposed the holder, and why.
func (e *DeposedError) Error() string { return fmt.Sprintf("deposed by %s: %s", e.By, e.Why) }

// lostError returns the error of an owner that has lost its lock to another one. It says so if the owner was deposed:
// read returns the record of that, for the fence counter of a key.
func lostError(
	keys []string, redisKeys []string, owner string, cause error, read func(record string) string,
) *LostError {
	name := lockwire.Name(owner)
	for i, key := range keys {
		if r, ok := lockwire.ParseRecord(read(lockwire.RecordKey(redisKeys[3*i+1], name))); ok {
			return &LostError{Keys: []string{key}, Reason: LossDeposed, Err: &DeposedError{By: r.By, Why: r.Why}}
		}
	}
	return &LostError{Keys: keys, Reason: LossTaken, Err: cause}
}

// readTimeout bounds the reading of a record.
const readTimeout = time.Second
