package contestant

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Redsync is github.com/go-redsync/redsync as it is by default. It waits 50 to 250 ms between its attempts, of which it makes 32.
var Redsync = pooling(NameRedsync, openRedsync())

// RedsyncFailFast is the same with the option not to wait for more servers than it takes.
var RedsyncFailFast = pooling(NameRedsync+" failfast", openRedsync(redsync.WithFailFast(true)))

func openRedsync(extra ...redsync.Option) func([]string, int) (Locker, error) {
	return func(addrs []string, connections int) (Locker, error) {
		r := &redsyncer{options: append([]redsync.Option{redsync.WithExpiry(TTL)}, extra...)}
		var pools []redsyncredis.Pool
		for _, addr := range addrs {
			client := redis.NewClient(options(addr, connections))
			r.clients = append(r.clients, client)
			pools = append(pools, goredis.NewPool(client))
		}
		r.mutexes = redsync.New(pools...)
		return r, nil
	}
}

type redsyncer struct {
	clients []*redis.Client
	mutexes *redsync.Redsync
	options []redsync.Option
}

// Pair acquires and releases.
func (r *redsyncer) Pair(ctx context.Context, key string) error {
	mutex := r.mutexes.NewMutex(key, r.options...)
	if err := mutex.TryLockContext(ctx); err != nil {
		return err
	}
	return unlock(ctx, mutex)
}

// Do waits by the mutex's retries.
func (r *redsyncer) Do(ctx context.Context, key string, hold func()) error {
	mutex := r.mutexes.NewMutex(key, r.options...)
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	hold()
	return unlock(context.WithoutCancel(ctx), mutex)
}

// Close ends the connections.
func (r *redsyncer) Close() error {
	var errs []error
	for _, client := range r.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func unlock(ctx context.Context, mutex *redsync.Mutex) error {
	ok, err := mutex.UnlockContext(ctx)
	if !ok {
		return errors.Join(errGone, err)
	}
	return nil
}
