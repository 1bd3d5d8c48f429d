package asynqconn

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

const (
	// settleFirst and settleMost are the pauses between the attempts at a script while a slot of a Cluster moves, and
	// settleLimit how long an acknowledgement goes on.
	settleFirst = 5 * time.Millisecond
	settleMost  = 250 * time.Millisecond
	settleLimit = 10 * time.Second
)

// OnceSettled sends a script of several keys of one slot, and again for a while as long as the slot moves from one node
// of a Cluster to another: Redis refuses the script then before it begins, and goes on to refuse it until the slot has
// arrived, since of a key that does not exist neither node can tell where it belongs. asynq would try an
// acknowledgement again each 5 s, and give up when its lease ends.
func OnceSettled(ctx context.Context, limit time.Duration, send func() *redis.Cmd) *redis.Cmd {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(settleFirst), backoff.WithMaxInterval(settleMost),
		backoff.WithMaxElapsedTime(limit))
	var cmd *redis.Cmd
	_ = backoff.Retry(func() error {
		cmd = send()
		if err := cmd.Err(); Moving(err) {
			return err
		}
		return nil
	}, backoff.WithContext(wait, ctx))
	return cmd
}

// Moving reports whether a node has refused a script before it began since its slot is on its way: go-redis ends with
// whichever of the three its last attempt met.
func Moving(err error) bool {
	_, ask := redis.IsAskError(err)
	_, moved := redis.IsMovedError(err)
	return ask || moved || redis.IsTryAgainError(err)
}
