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
	firstPause   = 5 * time.Millisecond
	noticedPause = 50 * time.Millisecond // the first one of a caller that will be told of a release
	longPause    = 500 * time.Millisecond
	// waitInterest is how long each refused attempt asks for an announcement of the release: until well after the next attempt.
	waitInterest = 4 * longPause
	// outagePatience is how long a caller that waits goes on while the servers cannot be reached.
	outagePatience = 10 * time.Second
)

// Do runs fn while it holds the keys. It waits for them like [Wait], releases them when fn has returned or panicked, and gives fn a context
// that carries the lease ([FromContext]) and ends when it is lost.
//
// It returns what fn returns, and an error that matches [ErrLost] when the lease was lost meanwhile, unless fn has called
// [Lease.MarkCommitted]. A release that could not be told to the servers is no error: the keys become free when their TTL ends.
func Do(ctx context.Context, l Locker, keys []string, opts Options, fn func(ctx context.Context, lease *Lease) error) (err error) {
	if fn == nil {
		panic("locking: Do needs a function")
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
	return fn(NewContext(lease.Context(ctx), lease), lease)
}

// Wait acquires the keys, and while another holds them tries again until ctx ends: after a jittered pause that grows from 5 ms to
// 0.5 s (from 50 ms, and early when their release is announced, if l is a [Watcher]). An announcement is a hint only, so a lost one costs a pause. With a
// [Gate] the callers of one process wait in line, and only the first of them asks the servers.
//
// When ctx ends, the error matches both its cause and [ErrHeld]; a lease that comes at that very moment is returned all the same. While the servers cannot be reached it goes on for 10 s; then the
// error matches [ErrUnavailable]. Any other error is returned at once, among them [ErrReentrant] for a key of a lease that ctx carries.
func Wait(ctx context.Context, l Locker, keys []string, opts Options) (*Lease, error) {
	return wait(ctx, l, keys, opts, false)
}

// wait is Wait. When ahead is set, a caller stands before those who wait in line already.
func wait(ctx context.Context, l Locker, keys []string, opts Options, ahead bool) (*Lease, error) {
	if q, ok := l.(queue); ok {
		return q.wait(ctx, keys, opts, ahead)
	}
	opts.Notify = max(opts.Notify, waitInterest)
	watcher, announced := l.(Watcher)
	pause := newPause(announced)
	var watch *Watch
	var notice <-chan struct{}
	defer func() {
		if watch != nil {
			watch.Close()
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
		if announced && watch == nil {
			if watch, err = watcher.Watch(ctx, keys); err != nil {
				watch = nil // then the pauses alone must do
			} else {
				notice = watch.C
			}
		}
		if !doze(ctx, length, notice) {
			return nil, gaveUp(ctx, pause.last)
		}
	}
}

// queue is a Locker whose callers wait in line.
type queue interface {
	wait(ctx context.Context, keys []string, opts Options, ahead bool) (*Lease, error)
}

// doze waits for a time or until a notice comes. It returns false when ctx has ended.
func doze(ctx context.Context, length time.Duration, notice <-chan struct{}) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-notice:
	case <-ctx.Done():
		return false
	}
	return true
}

// gaveUp is the error of a wait that its context has ended.
func gaveUp(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("locking: gave up waiting: %w: %w", context.Cause(ctx), last)
}

// pause decides how long to wait after an attempt that failed.
type pause struct {
	backoff *backoff.ExponentialBackOff
	last    error
	down    time.Time // since when the servers cannot be reached
}

func newPause(announced bool) *pause {
	first := firstPause
	if announced {
		first = noticedPause
	}
	return &pause{backoff: backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMultiplier(1.5),
		backoff.WithRandomizationFactor(0.5), backoff.WithMaxInterval(longPause), backoff.WithMaxElapsedTime(0))}
}

// after returns the length of the pause after an attempt that failed with err, or the error to give up with.
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
