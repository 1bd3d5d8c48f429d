package middleware

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// waitInSlot waits until it is time for another attempt: a delay has passed, a key was given back, or the server is shutting
// down. It returns an error only when the task's context has ended.
func (r *run) waitInSlot(ctx context.Context, d Decision) error {
	if r.delays == nil {
		initial := d.Backoff.Initial
		if initial <= 0 {
			initial = DefaultWaitInitial
		}
		r.delays = backoff.NewExponentialBackOff(backoff.WithInitialInterval(initial), backoff.WithMaxInterval(max(d.Backoff.Max, initial)),
			backoff.WithRandomizationFactor(d.Backoff.Jitter), backoff.WithMaxElapsedTime(0))
	}
	var released <-chan struct{}
	if r.watch == nil && r.watcher != nil && !r.blind {
		watch, err := r.watcher.Watch(ctx, r.keys)
		if err != nil {
			r.log.WarnContext(ctx, "releases of keys cannot be watched; polling goes on", "error", err)
			r.blind = true
		}
		r.watch = watch
	}
	if r.watch != nil {
		released = r.watch.C
	}
	timer := time.NewTimer(min(r.delays.NextBackOff(), time.Until(d.WaitUntil)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.stopping:
	case <-released:
	case <-timer.C:
	}
	return nil
}

// stopWaiting gives back what waiting took: the place in the budget and the watch.
func (r *run) stopWaiting() {
	if r.asleep {
		r.sleepers.give()
		r.asleep = false
	}
	if r.watch != nil {
		r.watch.Close()
		r.watch = nil
	}
}
