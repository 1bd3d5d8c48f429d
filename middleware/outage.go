package middleware

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/tasklimits"
)

const (
	// outagePatience is how long a task sits out an outage of Redis in its slot: other tasks could not run in it
	// either.
	outagePatience = 10 * time.Second
	// outageDelay is when a task tries again that has lost its patience.
	outageDelay = 10 * time.Second
	// outageMargin is what is left before the task's deadline when the patience ends: after it asynq heeds no outcome
	// of ours.
	outageMargin = time.Second
)

// outage is how long a run has sat out errors of one kind.
type outage struct {
	began  time.Time
	delays *backoff.ExponentialBackOff
}

// sitOut waits for a moment after cause, an error of Redis that may pass. When the patience is over, or the server
// shuts down, it returns the error that ends the run: the task is tried again later and has used up no retry. Where
// tasks cannot be parked, one on its last attempt has no other place to wait in than its slot, as asynq would archive
// it.
func (r *run) sitOut(ctx context.Context, o *outage, cause error) error {
	now := time.Now()
	if o.delays == nil {
		*o = outage{began: now, delays: backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
			backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))}
		r.Logger.WarnContext(ctx, "Redis cannot be reached; the task waits in its slot", "task", r.id.String(), "error",
			tasklimits.WithoutKeys(cause))
		r.observe(ctx, Event{Kind: Unavailable, Err: cause})
	}
	left := o.patienceEnds(ctx).Sub(now)
	delay := o.delays.NextBackOff()
	if left > 0 {
		delay = min(delay, left)
	}
	if (left <= 0 || r.isStopping()) && !r.nowhere() {
		if r.active != nil {
			r.active.Postpone(outageDelay)
		}
		return &unavailableError{cause, outageDelay}
	}
	return r.pause(ctx, delay, nil)
}

// pause waits for so long, or until a key was released or the server begins to shut down; that does not end the pause
// of a task with nowhere else to wait, which asynq puts back when the time of the shutdown is over. It returns an error
// only when the task's context has ended.
func (r *run) pause(ctx context.Context, d time.Duration, released <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	stopping := r.Stopping
	if r.nowhere() {
		stopping = nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stopping:
	case <-released:
	case <-timer.C:
	}
	return nil
}

// patienceEnds returns until when the task waits.
func (o *outage) patienceEnds(ctx context.Context) time.Time {
	end := o.began.Add(outagePatience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-outageMargin).Before(end) {
		return deadline.Add(-outageMargin)
	}
	return end
}
