package broker

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

const (
	// settleFirst and settleMost are the first and the longest pause between two attempts at a script while a slot of a
	// Cluster moves, and settleLimit limits the retries of an acknowledgement.
	settleFirst = 5 * time.Millisecond
	settleMost  = 250 * time.Millisecond
	settleLimit = 10 * time.Second
)

// OnceSettled sends a script of several keys of one slot, and retries it, for at most limit, while the slot moves from
// one node of a Cluster to another. Redis refuses such a script before it begins, until the slot has arrived: neither
// node can tell where a key belongs that does not exist. asynq itself would repeat an acknowledgement every 5 s, and give
// up when its lease ends.
func OnceSettled(ctx context.Context, limit time.Duration, send func() *redis.Cmd) *redis.Cmd {
	cmd := send()
	if !Moving(cmd.Err()) { // nearly always
		return cmd
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(settleFirst), backoff.WithMaxInterval(settleMost),
		backoff.WithMaxElapsedTime(limit))
	_ = backoff.Retry(func() error {
		cmd = send()
		if err := cmd.Err(); Moving(err) {
			return err
		}
		return nil
	}, backoff.WithContext(wait, ctx))
	return cmd
}

// Moving reports whether a node has refused a script before it began because its slot is moving. go-redis returns any
// of the three errors, depending on its last attempt.
func Moving(err error) bool { return rediswire.IsMoving(err) || rediswire.IsUnserved(err) }
