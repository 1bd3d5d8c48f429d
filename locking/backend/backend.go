// Package backend is for implementations of locks on another store: a [Backend] takes the keys, and locking.New makes a
// locking.Locker of it, which does the rest (options, renewal, loss, fencing tokens, waiting).
//
// Package locking/lockingtest checks that a backend keeps every promise.
package backend

import (
	"context"
	"time"
)

// Backend takes keys in a store. It must be safe for concurrent use.
//
// A backend that can tell callers of a release implements locking.Watcher as well.
type Backend interface {
	// Acquire makes one attempt to take every key, and does not wait for a holder. When another holder has one of the
	// keys it takes none, and returns a locking.HeldError. Any other error means that the attempt is undecided; Acquire
	// has then given back what it could reach.
	//
	// ctx bounds the attempt only; the grant outlives it. A lease is measured from before the call of Acquire, so one
	// that takes long leaves less of the TTL, or nothing: then the grant is released.
	Acquire(ctx context.Context, r Request) (Grant, error)
}

// Request is what an attempt asks for. Defaults are filled in, and all values are valid.
type Request struct {
	Keys    []string      // at least one, sorted, without duplicates; any bytes
	TTL     time.Duration // how long the keys stay locked when the grant is not renewed
	MaxHold time.Duration // the longest time for which the grant is renewed: what a fencing counter must outlive
	Label   string        // the holder's name for refused callers; may be empty

	// Notify asks a refused attempt to subscribe to the release of the key for this long: [Grant] Release then reports
	// it. Zero for no.
	Notify time.Duration

	// Block is how many consecutive fencing tokens to reserve for each key, 1 to 256. A backend may ignore it: see
	// [BlockGrant].
	Block int
}

// Grant is what a backend holds for one lease. It must be safe for concurrent use.
type Grant interface {
	// Fence returns the fencing token of the i-th key of the [Request]. It is positive, below 2^53, and larger than
	// that of every earlier grant of the key. Fence waits until the token is certain; when it is, it returns the token
	// also if ctx has ended.
	Fence(ctx context.Context, i int) (int64, error)

	// Renew makes the locks last for ttl from now. An error that matches locking.ErrLost is final; after any other the
	// lease tries again.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release deletes the locks that are still this grant's. It reports whether another caller has subscribed to the
	// release of one of the keys, and true when it cannot know. An error that matches locking.ErrLost means that a lock
	// was gone before.
	Release(ctx context.Context) (notify bool, err error)
}

// BlockGrant is a [Grant] whose tokens are the first of blocks, which a locking.Gate uses up while it hands the lease
// off.
type BlockGrant interface {
	Grant

	// Block returns how many consecutive tokens are reserved for each key.
	Block() int
}
