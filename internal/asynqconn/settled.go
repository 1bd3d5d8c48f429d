package asynqconn

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

const (
	// settleFirst and settleMost are the pauses between the attempts at an acknowledgement while the slot of its queue moves, and settleLimit how long they
	// go on.
	settleFirst = 5 * time.Millisecond
	settleMost  = 250 * time.Millisecond
	settleLimit = 10 * time.Second
)

// onceSettled sends an acknowledgement, and again for a while as long as the slot of its queue moves from one node of a Cluster to another: Redis refuses a script
// then before it begins. asynq would try again each 5 s, and give up when its lease ends.
func onceSettled(ctx context.Context, send func() *redis.Cmd) *redis.Cmd {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(settleFirst), backoff.WithMaxInterval(settleMost), backoff.WithMaxElapsedTime(settleLimit))
	var cmd *redis.Cmd
	_ = backoff.Retry(func() error {
		cmd = send()
		if err := cmd.Err(); redis.IsTryAgainError(err) {
			return err
		}
		return nil
	}, backoff.WithContext(wait, ctx))
	return cmd
}
