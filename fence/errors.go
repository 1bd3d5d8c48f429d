package fence

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced reports that a later holder of the lock has claimed the resource. This call has written nothing: roll the
	// transaction back. A handler returns the error, and asynq runs its task again, under a new lease, because the later
	// holder may be another task. The error that matches ErrFenced is a [FencedError].
	ErrFenced = errors.New("fence: a later holder of the lock has claimed the resource")

	// ErrApplied reports that an operation has already had its effect, in an earlier run that lost its lease, or whose
	// end could not be reported. Roll the transaction back and treat the work as done: a handler returns nil.
	ErrApplied = errors.New("fence: the operation has been applied already")

	// ErrRetry reports that a transaction lost a race that says nothing about tokens: a serialization failure, a
	// deadlock, a lock timeout, or a snapshot that is older than the claim. Roll back and run the whole transaction
	// again, as [SQL.Do] does.
	ErrRetry = errors.New("fence: run the transaction again")

	// ErrUnclaimed reports a Check with a token that was never claimed, or whose claim is gone. Call Claim first, in
	// the transaction that reads.
	ErrUnclaimed = errors.New("fence: the token was not claimed: call Claim before Check, in the transaction that reads")

	// ErrInvalid reports a call that no store could serve: a token outside of 1 to 2^53-1, an empty key or operation,
	// or a configuration that is incomplete. Nothing was sent.
	ErrInvalid = errors.New("fence: invalid")

	// ErrNoToken reports that a context carries no lease of the key, or that a request has no token. Pass on the
	// context that middleware.Lock gives to the handler, or locking.Do to its function. For a lease from Acquire or
	// Wait, use locking.NewContext, or make the [Token] from its FenceOf.
	ErrNoToken = errors.New("fence: no token")
)

// FencedError says which token was refused, and because of which later one. It matches [ErrFenced].
type FencedError struct {
	Key   string // empty in an error of [ResponseError], because an answer never names a key
	Token int64  // the one that was refused
	Seen  int64  // the one that the resource has; 0 if it did not say
}

// Error names both tokens, and the key if it is known.
func (e *FencedError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%v: token %d, the later one is %d", ErrFenced, e.Token, e.Seen)
	}
	return fmt.Sprintf("%v: key %q, token %d, the later one is %d", ErrFenced, e.Key, e.Token, e.Seen)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// invalid returns an error that matches ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// mayClaim returns nil if a token may raise a resource that has seen another one, 0 for none.
func mayClaim(t Token, seen int64) error {
	if seen > t.N {
		return &FencedError{Key: t.Key, Token: t.N, Seen: seen}
	}
	return nil
}

// mayWrite returns nil if a token may write to a resource that has seen another one, 0 for none.
func mayWrite(t Token, seen int64) error {
	if seen < t.N {
		return fmt.Errorf("%w: key %q, token %d, the resource has %d", ErrUnclaimed, t.Key, t.N, seen)
	}
	return mayClaim(t, seen)
}
