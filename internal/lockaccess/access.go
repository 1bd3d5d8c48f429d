// Package lockaccess lets other packages of this module do with locks what package locking does not export.
package lockaccess

import (
	"context"
	"io"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/locking/backend"
)

// Access is implemented by package locking. This package cannot import it, so Locker, Options and Lease stand for
// locking.Locker, locking.Options and *locking.Lease.
type Access[Locker, Options, Lease any] interface {
	// Backend returns the name of a Locker's backend: redis, redlock, or that of the package that implements it.
	Backend(locker Locker) string
	// Store identifies the place where a Locker keeps its locks: two Lockers with different stores do not exclude each
	// other. It begins with the name of the backend. ok is false if not all servers could be asked.
	Store(ctx context.Context, locker Locker) (store string, ok bool)
	// Namespace returns the name of the namespace of a Locker's locks on one Redis; "" for none. ok is false if the locks
	// are not on one Redis.
	Namespace(locker Locker) (name string, ok bool)
	// CloseBy closes a Locker as its Close does, but waits until the deadline at most. It calls Close of what does not
	// come from package locking.
	CloseBy(locker io.Closer, deadline time.Time) error

	// OnRelease returns a Locker in front of another one. It calls released with the keys of each lease that it has
	// granted, before Release returns, if another caller may wait for one of them: Lease.ShouldNotify is true. It does not
	// call released if a Gate has handed the lease off, because the keys are still locked then. Package attach wakes tasks
	// with it that wait for the keys of leases outside of tasks.
	OnRelease(locker Locker, released func(keys []string)) Locker
	// OnLateRelease calls freed with keys that a Locker has released only after its caller had its answer, if another
	// caller may wait for one of them: those of an attempt that was given back, or of a release that was answered late.
	// It does so until stop is called, and before Close of the Locker returns.
	OnLateRelease(locker Locker, freed func(keys []string)) (stop func())
	// EndWhenDeposed has the leases of a Locker end as soon as their keys are taken away by TakeOver, until stop is
	// called. Without it they end with their next renewals.
	EndWhenDeposed(locker Locker) (stop func(), err error)
	// EndWhenSilent has the leases of a Locker on one Redis end once silent returns an error, which is in their LostError: within a
	// second. lapsed ends those at once that have begun until then, although silent may return no error any more. Locks tell the
	// worker, by its name, only between this call and stop, and while silent returns nil.
	EndWhenSilent(locker Locker, name string, silent func() error) (lapsed func(why error), stop func())

	// Colocated returns the locks of a Locker for use in scripts, or nil if scripts cannot use them: they are on several
	// servers, or their Redis keys have names of their own. Two calls with the same Locker return equal locks.
	Colocated(locker Locker) colocated.Locks
	// Adopt makes a lease of keys that a script has taken. The error says why the keys are of no use; then the caller must
	// release them.
	Adopt(ctx context.Context, t *colocated.Taken, opts Options) (Lease, error)
	// Defer ends a lease, or hands it off, and leaves its release to the caller: it is Kept if the lease was handed off.
	// done is called with the outcome and the error that Lease.Release would have returned. Until the release is carried
	// out or said to be late, or a script has taken the keys for another task, callers of this process take the keys for
	// held. Defer returns nil if Lease.Release must be called: the lease is over, or no script can release it.
	Defer(lease Lease, done func(colocated.Outcome, error)) *colocated.Release
	// Supersede says that a script has woken a task for keys: leases of them that have ended were released, although this
	// process may have no answer yet.
	Supersede(locker Locker, keys []string)
	// Succeed has the caller follow the present lease of exactly these keys in this process, by the Gate in front of a
	// Locker. Once it is released, turn has the lease that was handed off to the caller, or nil. ok is false if there is no
	// such lease, it would not be handed off, or another caller waits for it. leave ends the wait; a lease that has come by
	// then is in turn.
	Succeed(locker Locker, keys []string, opts Options) (turn <-chan Lease, leave func(), ok bool)
	// Forgive marks a lease as committed whose holder has succeeded, if it has merely expired: no other owner has had its
	// keys until now. It asks the servers, for up to 5 s, unless stopping is closed.
	Forgive(ctx context.Context, stopping <-chan struct{}, lease Lease)
	// Grants returns the grants of a lease: one, or several if the lease was joined of others.
	Grants(lease Lease) []backend.Grant

	// Last has a lease not be handed off to the next caller of this process: others are to have its keys first.
	Last(lease Lease)
	// Depose takes the keys of a lease away from its holder in this process, and reports whether the lease could be trusted until then.
	// The caller releases it.
	Depose(lease Lease, by, why string) bool
	// TakeOver takes a key away from its owner, for a lease of the caller (docs/design.md, 3.11). The error matches
	// locking.ErrHeld if the key is another owner's than expected. After any other error the key may be taken: it is safe
	// to repeat the call.
	TakeOver(ctx context.Context, locker Locker, r Request) (Lease, error)
	// Leave ends a lease of TakeOver without a release: the key stays locked until its TTL ends.
	Leave(lease Lease)
}

// Request says what TakeOver takes.
type Request struct {
	Key     string
	Expect  string // name of the owner: see lockwire.Name
	Mark    string // its mark, if it is known
	Label   string // of the caller
	By, Why string // what the owner is told
	TTL     time.Duration
}

var provided any

// Provide is called once, by package locking.
func Provide[Locker, Options, Lease any](a Access[Locker, Options, Lease]) { provided = a }

// Of returns the Access of package locking, with the types of that package.
func Of[Locker, Options, Lease any]() Access[Locker, Options, Lease] {
	return provided.(Access[Locker, Options, Lease]) //nolint:errcheck,forcetypeassert // a wrong type ends the program at its start
}
