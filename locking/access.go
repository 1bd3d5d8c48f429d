package locking

import (
	"context"
	"io"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking/backend"
)

func init() { lockaccess.Provide[Locker, Options, *Lease](access{}) }

// access is what other packages of this module may do: see [lockaccess.Access].
type access struct{}

func (access) Backend(l Locker) string { return backendOf(l) }

func (access) Store(ctx context.Context, l Locker) (store string, ok bool) { return storeOf(ctx, l) }

func (access) Namespace(l Locker) (name string, ok bool) { return namespaceOf(l) }

func (access) CloseBy(l io.Closer, deadline time.Time) error {
	if l, ok := l.(interface {
		closeBy(deadline time.Time) error
	}); ok {
		return l.closeBy(deadline)
	}
	return l.Close()
}

func (access) OnRelease(l Locker, released func(keys []string)) Locker {
	f := &followedLocker{l, released}
	if w, ok := l.(Watcher); ok {
		return &followedWatcher{f, w}
	}
	return f
}

func (access) OnLateRelease(l Locker, freed func(keys []string)) (stop func()) {
	if l, ok := l.(interface{ lateReleases() *lateReleases }); ok {
		return l.lateReleases().follow(freed)
	}
	return func() {}
}

func (access) EndWhenDeposed(l Locker) (stop func(), err error) { return followDepositions(l) }

func (access) EndWhenSilent(l Locker, name string, silent func() error) (lapsed func(why error), stop func()) {
	return endWhenSilent(l, name, silent)
}

func (access) Colocated(l Locker) colocated.Locks {
	if l, ok := l.(interface{ colocated() (colocatedLocks, bool) }); ok {
		if locks, ok := l.colocated(); ok {
			return locks
		}
	}
	return nil
}

func (access) Adopt(ctx context.Context, t *colocated.Taken, opts Options) (*Lease, error) {
	return t.Locks.(colocatedLocks).adopt(ctx, t, opts) //nolint:errcheck,forcetypeassert // nothing else takes locks
}

func (access) Defer(l *Lease, done func(colocated.Outcome, error)) *colocated.Release {
	if grant, ok := l.grant.(*singleGrant); ok && len(grant.parts) == 1 {
		return l.deferRelease(grant, done)
	}
	return nil
}

func (access) Supersede(l Locker, keys []string) {
	if l, is := l.(interface{ supersede(keys []string) }); is {
		l.supersede(keys)
	}
}

func (access) Succeed(l Locker, keys []string, opts Options) (turn <-chan *Lease, leave func(), ok bool) {
	if l, is := l.(interface {
		succeed(keys []string, opts Options) (turn <-chan *Lease, leave func(), ok bool)
	}); is {
		return l.succeed(keys, opts)
	}
	return nil, nil, false
}

func (access) Forgive(ctx context.Context, stopping <-chan struct{}, l *Lease) {
	l.forgive(ctx, stopping)
}

func (access) Grants(l *Lease) []backend.Grant { return l.grants() }

func (a access) Last(l *Lease) {
	if joined, ok := l.grant.(*joinedGrant); ok {
		for _, part := range joined.parts {
			a.Last(part)
		}
	}
	if holder := l.heldBy(); holder != nil {
		holder.last(l)
	}
}

func (access) Depose(l *Lease, by, why string) bool { return l.depose(by, why) }

func (access) TakeOver(ctx context.Context, l Locker, r lockaccess.Request) (*Lease, error) {
	return takeOver(ctx, l, r)
}

func (access) Leave(l *Lease) { l.leave() }

// grants returns the grants of a lease: see [lockaccess.Access].
func (l *Lease) grants() []backend.Grant {
	joined, ok := l.grant.(*joinedGrant)
	if !ok {
		return []backend.Grant{l.grant}
	}
	var all []backend.Grant
	for _, part := range joined.parts {
		all = append(all, part.grants()...)
	}
	return all
}
