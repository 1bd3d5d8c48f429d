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
var Redislock = pooling(NameRedislock, func(addrs []string, connections int) (Locker, error) {
	client := redis.NewClient(options(addrs[0], connections))
	return &redislocker{client: client, locks: redislock.New(client)}, nil
})

type redislocker struct {
	client *redis.Client
	locks  *redislock.Client
}

// Pair acquires and releases.
func (r *redislocker) Pair(ctx context.Context, key string) error {
	lock, err := r.locks.Obtain(ctx, key, TTL, nil)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

// Do waits by the backoff.
func (r *redislocker) Do(ctx context.Context, key string, hold func()) error {
	lock, err := r.locks.Obtain(ctx, key, TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockBackoff)})
	if err != nil {
		return err
	}
	hold()
	return lock.Release(context.WithoutCancel(ctx))
}

// Close ends the connections.
func (r *redislocker) Close() error { return r.client.Close() }
