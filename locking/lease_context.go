package locking

import (
	"context"
	"slices"
)

// Done returns a channel that is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} {
	if l == nil {
		return ended.Done()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.cause != nil {
			close(l.done)
		}
	}
	return l.done
}

// Context returns a context that ends with parent, or when the lease is lost or released, with [Lease.Err] as its
// cause. It does not carry the lease: pass it to [NewContext] for [FromContext] and [ErrReentrant], as [Do] does.
func (l *Lease) Context(parent context.Context) context.Context {
	ctx, _ := l.during(parent)
	return ctx
}

// during returns a context that ends with parent or with the lease, and a function that ends it earlier.
func (l *Lease) during(parent context.Context) (ctx context.Context, drop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if l == nil {
		cancel(ErrReleased)
		return ctx, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check()
	if l.cause != nil {
		cancel(l.cause)
		return ctx, func() {}
	}
	if len(l.contexts) >= l.room {
		l.sweep()
	}
	l.contexts = append(l.contexts, leaseContext{ctx, cancel})
	return ctx, func() { cancel(nil) }
}

// firstContexts is how many contexts a lease keeps before it looks for ended ones.
const firstContexts = 16

// sweep removes contexts that have ended, and doubles the room for those that are left. An occasional sweep of many
// contexts costs less than a notification of each end. The caller holds the mutex.
func (l *Lease) sweep() {
	l.contexts = slices.DeleteFunc(l.contexts, func(c leaseContext) bool { return c.Err() != nil })
	l.room = max(2*len(l.contexts), firstContexts)
}
