package contestant

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockBackoff is shorter than what redislock's examples have (100 and 500 ms), which suits a hold of 1 ms better.
const redislockBackoff = 10 * time.Millisecond

// Redislock is github.com/bsm/redislock. It waits by a linear backoff.
var Redislock = pooling("redislock", func(addrs []string, connections int) (*Locker, error) {
	client := redis.NewClient(options(addrs[0], connections))
	locks := redislock.New(client)
	return &Locker{
		Pair: func(ctx context.Context, key string) error {
			lock, err := locks.Obtain(ctx, key, TTL, nil)
			if err != nil {
				return err
			}
			return lock.Release(ctx)
		},
		Do: func(ctx context.Context, key string, hold func()) error {
			backoff := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)}
			lock, err := locks.Obtain(ctx, key, TTL, backoff)
			if err != nil {
				return err
			}
			hold()
			return lock.Release(context.WithoutCancel(ctx))
		},
		Close: client.Close,
	}, nil
})
