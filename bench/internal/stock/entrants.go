package stock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/workers"
)

// contestant starts servers that give their tasks to a handler, and returns what stops them.
type contestant struct {
	name  string
	start func(client *redis.Client, handler asynq.HandlerFunc) (stop func() error, err error)
}

// recorded is the contestant whose tasks are enqueued with their keys.
const recorded = "railtoken, keys recorded"

var contestants = []contestant{
	bare("bare x 1", 1, nil), bare("bare x 2", 2, nil), bare("bare x 4", 4, nil), bare("bare x 8", 8, nil),
	{"attached, no keys", func(client *redis.Client, handler asynq.HandlerFunc) (func() error, error) {
		return attached(client, handler, false)
	}},
	{"railtoken", func(client *redis.Client, handler asynq.HandlerFunc) (func() error, error) {
		return attached(client, handler, true)
	}},
	{recorded, func(client *redis.Client, handler asynq.HandlerFunc) (func() error, error) {
		return attached(client, handler, true)
	}},
	bare("sleep-retry", 1, setNX), bare("redsync", 1, mutex),
}

// bare is so many stock asynq servers that share the slots. lock, when not nil, wraps the handler.
func bare(name string, servers int, lock func(*redis.Client, asynq.HandlerFunc) asynq.HandlerFunc) contestant {
	return contestant{name, func(client *redis.Client, handler asynq.HandlerFunc) (func() error, error) {
		if lock != nil {
			handler = lock(client, handler)
		}
		var all []func() error
		stop := func() error {
			var ending sync.WaitGroup
			errs := make([]error, len(all))
			for i, end := range all {
				ending.Go(func() { errs[i] = end() })
			}
			ending.Wait()
			return errors.Join(errs...)
		}
		for range servers {
			end, err := workers.Stock(client, asynq.Config{Concurrency: slots / servers}, handler)
			if err != nil {
				return nil, errors.Join(err, stop())
			}
			all = append(all, end)
		}
		return stop, nil
	}}
}

// attached is a stock asynq server with railtoken, as one attaches it.
func attached(client *redis.Client, handler asynq.HandlerFunc, locked bool) (func() error, error) {
	cfg := asynq.Config{Concurrency: slots}
	return workers.Attached(client, cfg, attach.Options{}, func(locks *attach.Attached) asynq.Handler {
		if locked {
			return locks.Lock(key)(handler)
		}
		return locks.Unlocked(handler)
	})
}

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// setNX is the lock that people write by hand. No task meets another one here.
func setNX(client *redis.Client, next asynq.HandlerFunc) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		key, owner := "lock:"+string(task.Payload()), rand.Text()
		if err := client.SetArgs(ctx, key, owner, redis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err(); err != nil {
			return err
		}
		return errors.Join(next(ctx, task), release.Run(ctx, client, []string{key}, owner).Err())
	}
}

// mutex is redsync's in the handler.
func mutex(client *redis.Client, next asynq.HandlerFunc) asynq.HandlerFunc {
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context, task *asynq.Task) error {
		lock := locks.NewMutex("lock:"+string(task.Payload()), redsync.WithExpiry(30*time.Second))
		if err := lock.LockContext(ctx); err != nil {
			return err
		}
		err := next(ctx, task)
		_, unlocked := lock.UnlockContext(ctx)
		return errors.Join(err, unlocked)
	}
}

// key returns the key of a task, which no other task has.
func key(_ context.Context, task *asynq.Task) ([]string, error) {
	return []string{string(task.Payload())}, nil
}
