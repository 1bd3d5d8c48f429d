package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	taskType  = "work"
	slots     = 4
	producers = 8

	checkInterval   = 50 * time.Millisecond // as in the other tables; asynq's defaults are 1 s and 5 s
	delayedInterval = time.Second
	retryDelay      = time.Second
)

// contestant is a way to run tasks, each of which has a key of its own.
type contestant struct {
	name string
	// recorded says that the tasks are enqueued with their keys.
	recorded bool
	attached bool
}

var contestants = []contestant{
	{name: "bare"}, {name: "railtoken, keys recorded", recorded: true, attached: true}, {name: "railtoken, keys found", attached: true},
}

// named returns the contestant of that name.
func named(name string) (contestant, error) {
	for _, c := range contestants {
		if c.name == name {
			return c, nil
		}
	}
	return contestant{}, fmt.Errorf("no contestant is called %q", name)
}

func names(of []contestant) (all []string) {
	for _, c := range of {
		all = append(all, c.name)
	}
	return all
}

// start starts a server of asynq, and returns what ends it.
func (c contestant) start(client redis.UniversalClient, handler asynq.HandlerFunc) (stop func() error, err error) {
	cfg := asynq.Config{
		Concurrency: slots, TaskCheckInterval: checkInterval, DelayedTaskCheckInterval: delayedInterval,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return retryDelay },
	}
	if !c.attached {
		return workers.Stock(client, cfg, handler)
	}
	return workers.Attached(client, cfg, attach.Options{}, func(locks *attach.Attached) asynq.Handler {
		return locks.Lock(middleware.PayloadKey(func(order string) string { return order }))(handler)
	})
}

// enqueue adds n tasks.
func (c contestant) enqueue(ctx context.Context, addr string, n int) error {
	return workers.Enqueue(ctx, addr, producers, n, func(client *worker.Client, i int) error {
		order, opts := fmt.Sprint("order:", i), []asynq.Option(nil)
		if c.recorded {
			opts = append(opts, attach.Keys(order))
		}
		_, err := client.EnqueueRaw(ctx, taskType, fmt.Appendf(nil, "%q", order), nil, opts...)
		return err
	})
}
