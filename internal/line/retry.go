package line

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// retryFor is how long [Retry] repeats a call.
const retryFor = 5 * time.Second

// Retry makes a call on behalf of waiting tasks, and repeats it for up to 5 s while it fails, as it does during a
// failover of Redis. It goes on when ctx ends, but not once stopping is closed. It returns the last error of the call.
func Retry[T any](
	ctx context.Context, stopping <-chan struct{}, call func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryFor)
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond))
	var cause error
	reply, err := backoff.RetryWithData(func() (reply T, err error) {
		if reply, err = call(ctx); err != nil {
			cause = err
			select {
			case <-stopping:
				err = backoff.Permanent(err)
			default:
			}
		}
		return reply, err
	}, backoff.WithContext(wait, ctx))
	if err == nil {
		return reply, nil
	}
	return reply, cause // rather than that the time is up
}
