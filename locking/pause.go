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

// gaveUp returns the error of a wait whose context has ended.
func gaveUp(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("locking: gave up waiting: %w: %w", context.Cause(ctx), last)
}

// growing returns pauses that grow by a factor from first to longest, each longer or shorter by up to the jitter.
func growing(first, longest time.Duration, factor, jitter float64) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest),
		backoff.WithMultiplier(factor), backoff.WithRandomizationFactor(jitter), backoff.WithMaxElapsedTime(0))
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
