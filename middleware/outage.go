package middleware

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
)

const (
	// outagePatience is how long a task waits in its slot for the end of a Redis outage. Other tasks could not run in
	// that slot either.
	outagePatience = 10 * time.Second
	// outageDelay is the pause before a task that has waited for outagePatience tries again.
	outageDelay = 10 * time.Second
	// outageMargin is how long before the task's deadline that wait ends: asynq ignores the error of a task that is
	// past its deadline.
	outageMargin = time.Second
)

// awaitRedis waits for a moment after cause, an error of Redis that may be temporary. When the patience is over, or the
// server shuts down, it returns the error that ends the run; the task is tried again later and has used up no retry. A
// task on its last attempt that cannot be parked keeps waiting in its slot, because asynq would archive it.
func (r *run) awaitRedis(ctx context.Context, o *outage, cause error) error {
	now := time.Now()
	if o.delays == nil {
		*o = outage{began: now, delays: backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
			backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))}
		r.Logger.WarnContext(ctx, "Redis cannot be reached or refuses commands; the task waits in its slot", "task", r.id.String(), "error",
			logsafe.Error(cause))
		r.observe(ctx, &Event{Kind: Unavailable, Err: cause})
	}
	left := o.patienceEnds(ctx).Sub(now)
	delay := o.delays.NextBackOff()
	if left > 0 {
		delay = min(delay, left)
	}
	if (left <= 0 || r.isStopping()) && !r.nowhere() {
		return r.postpone(cause)
	}
	return r.pause(ctx, delay, nil)
}

// postpone has the task come back after an outage, and returns the error of the run.
func (r *run) postpone(cause error) error {
	if r.active != nil {
		r.active.Postpone(outageDelay)
	}
	return &unavailableError{cause, outageDelay}
}

// pause waits for d, or until a key was released or the server begins to shut down. The shutdown does not end the pause
// of a task that can wait only in its slot: asynq returns that task to its queue when the shutdown times out. pause
// returns an error only if the task's context has ended.
func (r *run) pause(ctx context.Context, d time.Duration, released <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	r.freed = time.Time{}
	stopping := r.Stopping
	if r.nowhere() {
		stopping = nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stopping:
	case <-released:
		r.freed = r.clock()
	case <-timer.C:
	}
	return nil
}

// patienceEnds returns the time at which the wait in the slot ends.
func (o *outage) patienceEnds(ctx context.Context) time.Time {
	end := o.began.Add(outagePatience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-outageMargin).Before(end) {
		return deadline.Add(-outageMargin)
	}
	return end
}

// retry makes a call on behalf of waiting tasks, and repeats it while Redis refuses it, as it does during a failover.
// Without this a finished task would stay in the sequence, and the next one would have to wait for its timer. A worker
// that is shutting down tries once. If the call fails in the end, the log says what that means for the tasks.
func retry[T any](ctx context.Context, r *run, inVain string, call func(context.Context) (T, error)) (T, error) {
	reply, err := line.Retry(ctx, r.Stopping, call)
	if err != nil {
		r.Logger.WarnContext(ctx, "waking the next task failed", "result", inVain, "task", r.id.String(), "keys",
			logsafe.Keys(r.keys), "error", err)
	}
	return reply, err
}
