package leasing

import (
	"context"
	"io"
	"time"
)

// TakeOver takes a key away from its owner, for a *locking.Lease of the caller (docs/design.md, 3.11). locker is a
// locking.Locker on Redis. The error matches locking.ErrHeld if the key is another owner's than expected. After any
// other error the key may be taken: it is safe to repeat the call.
var TakeOver func(ctx context.Context, locker any, r Request) (lease any, err error)

// Request says what TakeOver takes.
type Request struct {
	Key     string
	Expect  string // name of the owner: see lockwire.Name
	Mark    string // its mark, if it is known
	Label   string // of the caller
	By, Why string // what the owner is told
	TTL     time.Duration
}

// Store identifies the place where a locking.Locker keeps its locks: two Lockers with different stores do not exclude each
// other. It begins with the name of the backend. ok is false if not all servers could be asked.
var Store func(ctx context.Context, locker any) (store string, ok bool)

// Backend returns the name of a locking.Locker's backend: redis, redlock, or that of the package that implements it.
var Backend func(locker any) string

// CloseBy closes a locking.Locker as its Close does, but waits until the deadline at most. It calls Close of what does
// not come from package locking.
var CloseBy func(locker io.Closer, deadline time.Time) error

// Forgive marks a *locking.Lease as committed whose holder has succeeded, if it has merely expired: no other owner has
// had its keys until now. It asks the servers, for up to 5 s, unless stopping is closed.
var Forgive func(ctx context.Context, stopping <-chan struct{}, lease any)

// Leave ends a lease of TakeOver without a release: the key stays locked until its TTL ends.
var Leave func(lease any)

// EndWhenDeposed has the leases of a locking.Locker end as soon as their keys are taken away by TakeOver, until stop is called.
// Without it they end with their next renewals.
var EndWhenDeposed func(locker any) (stop func(), err error)

// GrantsOf returns the backend.Grants of a *locking.Lease: one, or several if the lease was joined of others.
var GrantsOf func(lease any) []any
