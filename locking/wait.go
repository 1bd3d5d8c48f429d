package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Pauses between the attempts of a caller that waits.
const (
	firstPause      = 5 * time.Millisecond
	firstWatchPause = 50 * time.Millisecond // with a Watcher
	longPause       = 500 * time.Millisecond
	// waitNotify is how long each refused attempt subscribes to the release: until well after the next attempt.
	waitNotify = 4 * longPause
	// outagePatience is how long a wait continues while the servers cannot be reached.
	outagePatience = 10 * time.Second
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

// sleep waits for d, or until wake delivers a value. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// gaveUp returns the error of a wait whose context has ended.
func gaveUp(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("locking: gave up waiting: %w: %w", context.Cause(ctx), last)
}

// pause decides how long to wait after a failed attempt.
type pause struct {
	backoff *backoff.ExponentialBackOff
	last    error
	down    time.Time // since when the servers cannot be reached
}

// newPause returns the pauses of a caller that is, or is not, notified of releases.
func newPause(watched bool) *pause {
	first := firstPause
	if watched {
		first = firstWatchPause
	}
	return &pause{backoff: growing(first, longPause, 1.5, 0.5)}
}

// after returns the pause after an attempt that failed with err, or the error with which to give up.
func (p *pause) after(ctx context.Context, err error) (time.Duration, error) {
	switch {
	case ctx.Err() != nil:
		if errors.Is(err, ErrHeld) {
			p.last = err
		}
		return 0, gaveUp(ctx, p.last)
	case errors.Is(err, ErrHeld):
		p.last, p.down = err, time.Time{}
	case !errors.Is(err, ErrUnavailable):
		return 0, err
	case p.down.IsZero():
		p.down = time.Now()
	case time.Since(p.down) > outagePatience:
		return 0, err
	}
	return p.backoff.NextBackOff(), nil
}
