// Package backend defines what a lock store implements: a [Backend] takes keys, and a [Grant] renews and releases them.
//
//	type store struct{ ... }
//
//	func (s *store) Acquire(ctx context.Context, r backend.Request) (backend.Grant, error)
//
//	type grant struct{ ... }
//
//	func (g *grant) Fence(ctx context.Context, i int) (int64, error)
//	func (g *grant) Renew(ctx context.Context, ttl time.Duration) error
//	func (g *grant) Release(ctx context.Context) (notify bool, err error)
//
//	locker := locking.New(&store{})
//
// A refusal is a *locking.HeldError, and a grant that is gone returns an error that matches locking.ErrLost.
// locking.New turns a Backend into a locking.Locker, and adds the rest: options, renewal in the background, detection
// of losses, and waiting. Package lockingtest has the test suite that a Backend must pass.
package backend

import (
	"context"
	"time"
)

// Backend takes keys in a store. It must be safe for concurrent use.
//
// A Backend that can notify callers of releases also implements locking.Watcher.
type Backend interface {
	// Acquire makes one attempt to take all of the keys, and does not wait for their holders. When another holder has one
	// of the keys, Acquire takes none and returns a *locking.HeldError that describes that holder: its label, when it took
	// the key, its fencing token, and how long its lock lasts. If several keys are held, it describes the holder of the
	// first one, and only that key needs a subscription. After any other error the outcome may be unknown, and Acquire
	// has released what it could.
	//
	// When ctx has ended, Acquire must take nothing and return an error other than a HeldError. The grant outlives ctx.
	// The validity of the lease counts from before the call, so a slow attempt leaves less of the TTL. When less than a
	// third is left, the grant is renewed before its holder gets the lease; when that fails, or nothing is left, the
	// grant is released.
	Acquire(ctx context.Context, r Request) (Grant, error)
}

// Request describes an attempt. Its values have been validated, and defaults have been filled in.
type Request struct {
	Keys    []string      // at least one, sorted, without duplicates; any bytes; a Backend may keep but not change them
	TTL     time.Duration // how long the keys stay locked without a renewal
	MaxHold time.Duration // the longest time for which the grant is renewed; fencing counters must outlive it
	Label   string        // the holder's name in a HeldError; printable, and never empty

	// Notify is how long a refused attempt subscribes to the releases of the key, of this holder and of later ones, which
	// [Grant].Release then reports. Zero for no subscription. A Backend may ignore it; Release then always returns
	// notify = true.
	Notify time.Duration

	// Block is how many consecutive fencing tokens to reserve for each key, 1 to 256. A Backend may ignore it: see
	// [BlockGrant].
	Block int
}

// Grant is a Backend's part of a lease. It must be safe for concurrent use.
type Grant interface {
	// Fence returns the fencing token of the i-th key of the [Request]. The token is positive, below 2^53, and larger
	// than that of every earlier grant of the key. Fence waits until the token is certain. A certain token is returned
	// even if ctx has ended.
	Fence(ctx context.Context, i int) (int64, error)

	// Renew extends the locks so that they last for ttl from now. If one of them is gone, because it has expired or was
	// deleted, or is another holder's, Renew does not touch it and returns an error that matches locking.ErrLost. That
	// ends the lease with a locking.LostError whose Reason is LossTaken. Renew may extend the other locks or leave them as
	// they are, because Release deletes them in either case. After any other error, the lease is renewed again later.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release deletes all locks that are still this grant's, and leaves those of other holders alone. It returns an
	// error that matches locking.ErrLost if another holder has, or has had, one of the keys in the meantime. To tell,
	// compare the fencing counter of the key with the last token of this grant: it is larger after another grant.
	// Release may return such an error if a lock is merely gone. notify reports whether another caller has subscribed to
	// the release of one of the keys; a Backend that does not know, or keeps no subscriptions, returns true.
	//
	// Release is called once. A Backend repeats a failed release itself, or leaves the locks to their TTL.
	Release(ctx context.Context) (notify bool, err error)
}

// Identified is a [Backend], or a locking.Locker of its own kind, that can tell its store from another one. Then workers of
// one queue whose locks are in different stores are noticed.
type Identified interface {
	// Store identifies the store. It is the same in all processes whose locks exclude each other, and different otherwise.
	// It is short and printable, has no spaces at its ends, and contains no secret. It is asked every 5 s.
	Store(ctx context.Context) (string, error)
}

// UntouchedGrant is a [Grant] that can tell whether exclusion has held although its locks have expired. If the store has
// stood still for longer than the TTL, the work of a holder that has succeeded then still counts.
type UntouchedGrant interface {
	Grant

	// Untouched reports whether no other grant has had any of the keys since this one was granted: each key is free, or
	// still locked by this grant. It is false if the store cannot tell. It is asked after the TTL has ended and before
	// Release, and repeated for a few seconds after an error.
	Untouched(ctx context.Context) (bool, error)
}

// BlockGrant is a [Grant] that has reserved a block of consecutive tokens for each key, of which Fence returns the
// first. A locking.Gate gives one to each holder to which it hands the lease off.
type BlockGrant interface {
	Grant

	// Block returns how many consecutive tokens are reserved for each key.
	Block() int
}
