package contestant

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Redsync is github.com/go-redsync/redsync as it is by default, and RedsyncFailFast with the option not to wait for
// more servers than it takes. It waits 50 to 250 ms between its attempts, of which it makes 32.
var (
	Redsync         = pooling("redsync", openRedsync())
	RedsyncFailFast = pooling("redsync failfast", openRedsync(redsync.WithFailFast(true)))
)

func openRedsync(extra ...redsync.Option) func([]string, int) (*Locker, error) {
	opts := append([]redsync.Option{redsync.WithExpiry(TTL)}, extra...)
	return func(addrs []string, connections int) (*Locker, error) {
		var clients []*redis.Client
		var pools []redsyncredis.Pool
		for _, addr := range addrs {
			client := redis.NewClient(options(addr, connections))
			clients, pools = append(clients, client), append(pools, goredis.NewPool(client))
		}
		mutexes := redsync.New(pools...)
		return &Locker{
			Pair: func(ctx context.Context, key string) error {
				mutex := mutexes.NewMutex(key, opts...)
				if err := mutex.TryLockContext(ctx); err != nil {
					return err
				}
				return unlock(ctx, mutex)
			},
			Do: func(ctx context.Context, key string, hold func()) error {
				mutex := mutexes.NewMutex(key, opts...)
				if err := mutex.LockContext(ctx); err != nil {
					return err
				}
				hold()
				return unlock(context.WithoutCancel(ctx), mutex)
			},
			Close: func() (err error) {
				for _, client := range clients {
					err = errors.Join(err, client.Close())
				}
				return err
			},
		}, nil
	}
}

func unlock(ctx context.Context, mutex *redsync.Mutex) error {
	if ok, err := mutex.UnlockContext(ctx); !ok {
		return errors.Join(errGone, err)
	}
	return nil
}
