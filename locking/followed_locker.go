package locking

import (
	"context"
)

// followedLocker is a Locker whose releases are reported: see [lockaccess.Access].
type followedLocker struct {
	inner    Locker
	released func(keys []string)
}

// followedWatcher is a followedLocker whose inner Locker implements [Watcher].
type followedWatcher struct {
	*followedLocker
	Watcher
}

// Acquire makes one attempt: see [Locker].
func (f *followedLocker) Acquire(ctx context.Context, keys []string, opts Options) (*Lease, error) {
	return f.follow(f.inner.Acquire(ctx, keys, opts))
}

// wait lets the inner Locker wait, which may be a Gate.
func (f *followedLocker) wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error) {
	return f.follow(wait(ctx, f.inner, keys, opts, ahead))
}

func (f *followedLocker) follow(l *Lease, err error) (*Lease, error) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.holder = &follower{l.holder, f.released}
	}
	return l, err
}

// follower is the holder of a lease whose release is reported.
type follower struct {
	inner  holder // the Gate's, or nil
	report func(keys []string)
}

func (f *follower) releasing() (awaited bool) { return f.inner != nil && f.inner.releasing() }

func (f *follower) handOff(l *Lease) bool { return f.inner != nil && f.inner.handOff(l) }

func (f *follower) released(l *Lease, notify bool) (refused bool) {
	refused = f.inner != nil && f.inner.released(l, notify)
	if notify || refused {
		f.report(l.Keys())
	}
	return refused
}

func (f *follower) lost(l *Lease) {
	if f.inner != nil {
		f.inner.lost(l)
	}
}

func (f *follower) last(l *Lease) {
	if f.inner != nil {
		f.inner.last(l)
	}
}

func (f *follower) isOf(l Locker) bool {
	inner, ok := f.inner.(interface{ isOf(l Locker) bool })
	return ok && inner.isOf(l)
}
