// Package lockhook gives other packages of this module what package locking does not export: the Redis keys and owners of
// its locks, a way to take keys away from their holders, the grants of a lease, and a call when a lock is released.
// Package locking sets its functions.
package lockhook

import (
	"context"
	"time"
)

// RedisKeys returns the Redis keys of a business key's lock. name returns that of the lock; nil for the usual one.
var RedisKeys func(key string, name func(key string) string) (Keys, error)

// Keys are the Redis keys of the lock of one business key, all in one slot.
type Keys struct{ Lock, Fence, Notify string }

// Parse returns what the value of a lock says about its holder.
var Parse func(value string) Owner

// Owner is what the value of a lock says about its holder.
type Owner struct {
	// Ours is false if another program has set the lock. Then the rest is zero, and Block is 1.
	Ours  bool
	Label string
	Since time.Time
	Block int64 // how many tokens are reserved
	// Mark is what identifies it among the owners whose late calls are refused.
	Mark string
}

// TakeOver takes a key away from its owner, for a *locking.Lease of the caller (docs/design.md, 3.11). locker is a
// locking.Locker on Redis. The error matches locking.ErrHeld if the key is another owner's than expected. After any
// other error the key may be taken: it is safe to repeat the call.
var TakeOver func(ctx context.Context, locker any, r Request) (lease any, err error)

// Request says what TakeOver takes.
type Request struct {
	Key     string
	Expect  string // name of the owner: see Name
	Mark    string // its mark, if it is known
	Label   string // of the caller
	By, Why string // what the owner is told
	TTL     time.Duration
}

// Backend returns the name of a locking.Locker's backend: redis, redlock, or that of the package that implements it.
var Backend func(locker any) string

// Leave ends a lease of TakeOver without a release: the key stays locked until its TTL ends.
var Leave func(lease any)

// EndWhenDeposed has the leases of a locking.Locker end as soon as their keys are taken away by TakeOver, until stop is called.
// Without it they end with their next renewals.
var EndWhenDeposed func(locker any) (stop func(), err error)

// Name returns the name of the value of a lock.
var Name func(value string) string

// Record returns the Redis key of the record of an owner that was deposed, given that of the fence counter.
var Record func(fence, name string) string

// MarkOf returns the mark of the deposed owner in the value of a record, or an empty string.
var MarkOf func(record string) string

// GrantsOf returns the backend.Grants of a *locking.Lease: one, or several if the lease was joined of others.
var GrantsOf func(lease any) []any
