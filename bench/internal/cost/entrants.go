package cost

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
)

// starter starts servers that give their tasks to a handler, and returns what stops them.
type starter func(client redis.UniversalClient, handler asynq.HandlerFunc) (stop func() error, err error)

// entrant is a way to run the tasks.
type entrant struct {
	name  string
	start starter
}

// recorded is the entrant whose tasks are enqueued with their keys.
const recorded = "railtoken, keys recorded"

var entrants = []entrant{
	{"bare x 1", bare(1)},
	{"bare x 2", bare(2)},
	{"bare x 4", bare(4)},
	{"bare x 8", bare(8)},
	{"attached, no keys", attached(attach.Options{}, (*attach.Attached).Unlocked)},
	{"railtoken", attached(attach.Options{}, byKey)},
	{recorded, attached(attach.Options{}, byKey)},
	{"sleep-retry", holding(1, locks.SetNX)},
	{"redsync", holding(1, locks.Mutex)},
}

// bare is so many stock asynq servers that share the slots.
func bare(servers int) starter {
	return func(client redis.UniversalClient, handler asynq.HandlerFunc) (func() error, error) {
		return workers.All(servers, func(int) (func() error, error) {
			return workers.Stock(client, asynq.Config{Concurrency: slots / servers}, handler)
		})
	}
}

// attached is a stock asynq server with railtoken, as one attaches it.
func attached(opts attach.Options, lock func(*attach.Attached, asynq.Handler) asynq.Handler) starter {
	return func(client redis.UniversalClient, handler asynq.HandlerFunc) (func() error, error) {
		cfg := asynq.Config{Concurrency: slots}
		return workers.Attached(client, cfg, opts, func(locks *attach.Attached) asynq.Handler { return lock(locks, handler) })
	}
}

// byKey locks by a task's key, which no other task has.
func byKey(locks *attach.Attached, handler asynq.Handler) asynq.Handler {
	return locks.Lock(middleware.PayloadKey(func(order string) string { return order }))(handler)
}

// holding is so many stock asynq servers that share the slots. Their handler takes a lock that people use.
func holding(servers int, lock func(*redis.Client) locks.Lock) starter {
	return func(client redis.UniversalClient, handler asynq.HandlerFunc) (func() error, error) {
		one, ok := client.(*redis.Client)
		if !ok {
			return nil, fmt.Errorf("the lock is for one Redis, and this is a %T", client)
		}
		held := lock(one)
		return bare(servers)(client, func(ctx context.Context, task *asynq.Task) error {
			var done error
			err := held(ctx, "lock:"+string(task.Payload()), func() { done = handler(ctx, task) })
			return errors.Join(done, err)
		})
	}
}
