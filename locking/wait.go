package locking

import (
	"context"
	"errors"
)

// Do runs fn while it holds the keys. It waits for them as [Wait] does, and releases them when fn returns or panics.
// The context of fn carries the lease ([FromContext]) and ends when the lease is lost.
//
// Do returns the error of fn, joined with one that matches [ErrLost] if the lease was lost and fn has not called
// [Lease.MarkCommitted]. If fn succeeds, a lease that has merely expired is not lost as long as no other owner has had the
// keys: Do asks the backend for up to 5 s. A failed release is not an error: the keys become free when their TTL ends. Do
// panics if fn is nil.
func Do(
	ctx context.Context, l Locker, keys []string, opts Options, fn func(ctx context.Context, lease *Lease) error,
) (err error) {
	if fn == nil {
		panic("locking: Do needs a function")
	}
	if l == nil {
		panic("locking: Do needs a Locker")
	}
	lease, err := Wait(ctx, l, keys, opts)
	if err != nil {
		return err
	}
	defer func() {
		if released := lease.Release(ctx); errors.Is(released, ErrLost) && !lease.Committed() {
			err = errors.Join(err, released)
		}
	}()
	if err = fn(NewContext(lease.Context(ctx), lease), lease); err == nil {
		lease.forgive(ctx, nil)
	}
	return err
}

// Wait acquires the keys. While another holder has one of them, Wait tries again until ctx ends, with jittered pauses
// that grow from 5 ms to 0.5 s. If l is a [Watcher], the pauses start at 50 ms, and end early when the Watcher reports
// a release. With a [Gate], the callers of one process form a queue, and only the first of them asks the servers.
//
// When ctx ends, the error matches its cause, and [ErrHeld] unless the servers could not be reached; a lease granted at
// that instant is still returned. If the servers cannot be reached for 10 s, the error matches [ErrUnavailable]. Any
// other error is returned at once, such as [ErrReentrant] for a key of a lease that ctx carries.
func Wait(ctx context.Context, l Locker, keys []string, opts Options) (*Lease, error) {
	return wait(ctx, l, keys, opts, false)
}

// wait implements Wait. With ahead, the caller is queued before those without it.
func wait(ctx context.Context, l Locker, keys []string, opts Options, ahead bool) (*Lease, error) {
	if q, ok := l.(queuer); ok {
		return q.wait(ctx, keys, opts, ahead)
	}
	opts.Notify = max(opts.Notify, waitNotify)
	watcher, _ := l.(Watcher)
	pause := newPause(watcher != nil)
	var released <-chan struct{}
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		lease, err := l.Acquire(ctx, keys, opts)
		if err == nil {
			return lease, nil
		}
		length, err := pause.after(ctx, err)
		if err != nil {
			return nil, err
		}
		if watcher != nil && released == nil {
			if ch, end, err := watcher.Watch(ctx, keys); err == nil { // without it there are the pauses
				released, stop = ch, end
			}
		}
		if !sleep(ctx, length, released) {
			return nil, gaveUp(ctx, pause.last)
		}
	}
}

// queuer is a Locker with its own queue of waiting callers.
type queuer interface {
	wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error)
}
