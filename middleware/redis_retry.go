package middleware

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/internal/redact"
)

// retry makes a call on behalf of waiting tasks, and repeats it while Redis refuses it, as it does during a failover.
// Without this a finished task would stay in the sequence, and the next one would have to wait for its timer. A worker
// that is shutting down tries once. If the call fails in the end, the log says what that means for the tasks.
func retry[T any](ctx context.Context, r *run, inVain string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond))
	var cause error
	reply, err := backoff.RetryWithData(func() (reply T, err error) {
		if reply, err = call(ctx); err != nil {
			cause = err
			if r.isStopping() {
				err = backoff.Permanent(err)
			}
		}
		return reply, err
	}, backoff.WithContext(wait, ctx))
	if err == nil {
		return reply, nil
	}
	r.Logger.WarnContext(ctx, "waking the next task failed", "result", inVain, "task", r.id.String(), "keys",
		redact.Keys(r.keys), "error", cause)
	return reply, cause // rather than that the time is up
}
