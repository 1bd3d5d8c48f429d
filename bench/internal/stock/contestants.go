package stock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// contestant starts servers that give their tasks to a handler, and returns what stops them.
type contestant struct {
	name  string
	start func(client *redis.Client, handler asynq.HandlerFunc) (stop func(), err error)
}

// recorded is the contestant whose tasks are enqueued with their keys.
const recorded = "railtoken, keys recorded"

var contestants = []contestant{
	bare("bare x 1", 1, nil), bare("bare x 2", 2, nil), bare("bare x 4", 4, nil), bare("bare x 8", 8, nil),
	{"attached, no keys", func(client *redis.Client, handler asynq.HandlerFunc) (func(), error) {
		return attached(client, handler, false)
	}},
	{"railtoken", func(client *redis.Client, handler asynq.HandlerFunc) (func(), error) {
		return attached(client, handler, true)
	}},
	{recorded, func(client *redis.Client, handler asynq.HandlerFunc) (func(), error) {
		return attached(client, handler, true)
	}},
	bare("sleep-retry", 1, setNX), bare("redsync", 1, mutex),
}

// bare is so many stock asynq servers that share the slots. lock, when not nil, wraps the handler.
func bare(name string, servers int, lock func(*redis.Client, asynq.HandlerFunc) asynq.HandlerFunc) contestant {
	return contestant{name, func(client *redis.Client, handler asynq.HandlerFunc) (func(), error) {
		if lock != nil {
			handler = lock(client, handler)
		}
		var all []*asynq.Server
		stop := func() {
			var ending sync.WaitGroup
			for _, s := range all {
				ending.Go(s.Shutdown)
			}
			ending.Wait()
		}
		for range servers {
			s := asynq.NewServerFromRedisClient(client, config(slots/servers))
			if err := s.Start(handler); err != nil {
				stop()
				return nil, err
			}
			all = append(all, s)
		}
		return stop, nil
	}}
}

func config(concurrency int) asynq.Config {
	return asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second}
}

// attached is a stock asynq server with railtoken, as one attaches it.
func attached(client *redis.Client, handler asynq.HandlerFunc, locked bool) (func(), error) {
	a, err := attach.New(client, config(slots), attach.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	work := a.Unlocked(handler)
	if locked {
		work = a.Lock(keys)(handler)
	}
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := s.Start(work); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return func() {
		a.Stop()
		s.Shutdown()
		_ = a.Close()
	}, nil
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

// producers enqueue at the same time.
const producers = 8

// enqueuer is asynq's Client, or railtoken's Producer, which records the keys of the tasks.
type enqueuer interface {
	EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
}

// keys returns the keys of a task.
func keys(_ context.Context, task *asynq.Task) ([]string, error) {
	return []string{string(task.Payload())}, nil
}

// enqueue adds tasks, whose payload is a key of their own.
func enqueue(ctx context.Context, addr string, tasks int, recorded bool) error {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: producers})
	defer func() { _ = client.Close() }()
	var queue enqueuer = asynq.NewClientFromRedisClient(client)
	if recorded {
		p, err := attach.NewProducer(client, attach.ProducerOptions{Keys: map[string]middleware.KeyFunc{"noop": keys}})
		if err != nil {
			return err
		}
		defer func() { _ = p.Close() }()
		queue = p
	}
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < tasks && failed[p] == nil; i += producers {
				task := asynq.NewTask("noop", fmt.Append(nil, "order:", i))
				_, failed[p] = queue.EnqueueContext(ctx, task, asynq.Timeout(time.Minute))
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// counter counts the tasks that are done.
type counter struct {
	done      atomic.Int64
	warmAt    int64
	endAt     int64
	warm, all chan struct{} // closed when so many are done
}

func newCounter(warmAt, endAt int) *counter {
	return &counter{warmAt: int64(warmAt), endAt: int64(endAt), warm: make(chan struct{}), all: make(chan struct{})}
}

func (c *counter) handle(context.Context, *asynq.Task) error {
	switch c.done.Add(1) {
	case c.warmAt:
		close(c.warm)
	case c.endAt:
		close(c.all)
	}
	return nil
}

func (c *counter) await(ctx context.Context, until chan struct{}) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d tasks were done: %w", c.done.Load(), c.endAt, context.Cause(ctx))
	}
}
