package middleware

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// retry makes a call that is for the tasks that wait, and again while Redis refuses, as it does during a failover: else
// the task would stay in line itself, and the next one would wait for its timer. A worker that shuts down tries once.
// When it was in vain, the log says what that means.
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
		r.hashed(r.keys), "error", cause)
	return reply, cause // and not that the time is up
}
