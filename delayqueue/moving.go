package delayqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

const (
	// movingFirst and movingMost are the pauses between two attempts at a call while a slot of the Cluster moves, and settleLimit how long an operator's
	// call is tried. A wake goes on: see follow.
	movingFirst = 5 * time.Millisecond
	movingMost  = 500 * time.Millisecond
	settleLimit = 5 * time.Second
)

// moving reports whether a node has refused a script of several keys because their slot is on its way to another node, and some of the keys
// are on either side, or are nowhere. The script has not begun. It is refused until the slot has arrived: some of asynq's lists are empty as a rule, and
// of a key that does not exist neither node can tell where it belongs.
func moving(err error) bool { return redis.IsTryAgainError(err) }

// runSettled runs a script of several keys of one slot, and again for a while as long as the slot moves.
func (q *Queue) runSettled(ctx context.Context, script *redis.Script, keys []string, args ...any) (string, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(movingFirst), backoff.WithMaxInterval(movingMost),
		backoff.WithMaxElapsedTime(settleLimit))
	reply, err := backoff.RetryWithData(func() (string, error) {
		reply, err := script.Run(ctx, q.client, keys, args...).Text()
		if err != nil && !moving(err) {
			err = backoff.Permanent(err)
		}
		return reply, err
	}, backoff.WithContext(wait, ctx))
	if moving(err) {
		err = fmt.Errorf("the slot of its queue is moving to another node of the cluster: try again once it has arrived: %w", err)
	}
	return reply, err
}
