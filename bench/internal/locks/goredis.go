package locks

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redislockBackoff is shorter than what redislock's examples have (100 and 500 ms), which suits a hold of 1 ms better.
const redislockBackoff = 10 * time.Millisecond

// The contestants that lock by go-redis, except railtoken.
var (
	// Floor is what the canonical pattern costs with the bare client: see [SetNX]. It has no fencing token, no renewal
	// and no way to wait.
	Floor = onRedis(NameFloor, func(clients []*redis.Client) *Locker { return &Locker{Try: SetNX(clients[0])} })
	// Redislock is github.com/bsm/redislock. It waits by a linear backoff.
	Redislock = onRedis("redislock", func(clients []*redis.Client) *Locker {
		locks := redislock.New(clients[0])
		with := func(opts *redislock.Options) Lock {
			return func(ctx context.Context, key string, hold func()) error {
				lock, err := locks.Obtain(ctx, key, TTL, opts)
				if err != nil {
					return err
				}
				hold()
				return lock.Release(context.Background())
			}
		}
		backoff := redislock.LinearBackoff(redislockBackoff)
		return &Locker{Try: with(nil), Wait: with(&redislock.Options{RetryStrategy: backoff})}
	})
	// Redsync is github.com/go-redsync/redsync as it is by default. It waits 50 to 250 ms between its attempts, of which
	// it makes 32.
	Redsync = onRedis("redsync", func(clients []*redis.Client) *Locker { return mutex(clients) })
	// RedsyncFailFast has the option not to wait for more servers than it takes.
	RedsyncFailFast = onRedis("redsync failfast", func(clients []*redis.Client) *Locker {
		return mutex(clients, redsync.WithFailFast(true))
	})
)

//go:embed lua/release.lua
var releaseSource string

var release = redis.NewScript(releaseSource)

// SetNX takes a key by SET NX PX with a random value, and gives it back by a script that deletes the key when it still
// has that value. It tries once.
func SetNX(client *redis.Client) Lock {
	return func(ctx context.Context, key string, hold func()) error {
		value := rand.Text()
		err := client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: TTL}).Err()
		if errors.Is(err, redis.Nil) {
			return ErrTaken
		}
		if err != nil {
			return err
		}
		hold()
		deleted, err := release.Run(context.Background(), client, []string{key}, value).Int()
		if err == nil && deleted == 0 {
			return errGone
		}
		return err
	}
}

// Mutex waits for redsync's, on one server: see [Redsync].
func Mutex(client *redis.Client) Lock { return mutex([]*redis.Client{client}).Wait }

func mutex(clients []*redis.Client, extra ...redsync.Option) *Locker {
	var pools []redsyncredis.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	mutexes := redsync.New(pools...)
	opts := append([]redsync.Option{redsync.WithExpiry(TTL)}, extra...)
	by := func(lock func(*redsync.Mutex, context.Context) error) Lock {
		return func(ctx context.Context, key string, hold func()) error {
			m := mutexes.NewMutex(key, opts...)
			if err := lock(m, ctx); err != nil {
				return err
			}
			hold()
			if ok, err := m.UnlockContext(context.Background()); !ok {
				return errors.Join(errGone, err)
			}
			return nil
		}
	}
	return &Locker{Try: by((*redsync.Mutex).TryLockContext), Wait: by((*redsync.Mutex).LockContext)}
}

// onRedis returns a kind that has a client for each server.
func onRedis(name string, locker func(clients []*redis.Client) *Locker) Kind {
	return Kind{Name: name, hasPool: true, open: func(addrs []string, connections int) (*Locker, error) {
		clients := make([]*redis.Client, len(addrs))
		for i, addr := range addrs {
			clients[i] = redis.NewClient(options(addr, connections))
		}
		return over(func() (err error) {
			for _, client := range clients {
				err = errors.Join(err, client.Close())
			}
			return err
		}, locker(clients), nil)
	}}
}

// options are those of each go-redis client: the defaults, but for deadlines of contexts, which the lock libraries rely
// on to give up on a server that hangs, and a feature of other servers that would be tried in vain on each connection.
// connections is the size of the pool, the usual one when 0.
func options(addr string, connections int) *redis.Options {
	return &redis.Options{
		PoolSize:                 connections,
		Addr:                     addr,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
