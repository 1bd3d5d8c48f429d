package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/locking"
)

// checkInterval is how often an idle server of those without railtoken looks for tasks, and delayedInterval how often
// it looks at delayed tasks: as often as railtoken does by default. asynq's own defaults are 1 s and 5 s. retryDelay is
// that of the contestants that leave waiting to asynq.
const (
	checkInterval   = 50 * time.Millisecond
	delayedInterval = time.Second
	retryDelay      = time.Second
)

// payload is what each task carries.
type payload struct {
	N   int    `json:"n"`
	Key string `json:"key"`
}

func (p payload) keys() []string { return []string{p.Key} }

// serverStart is a way of package workers to start an asynq server.
type serverStart func(redis.UniversalClient, asynq.Config, asynq.Handler) (stop func() error, err error)

// startAsynq starts an asynq server with the rest of a configuration. Its handler works on a task while it holds the
// lock; without one when lock is nil.
func startAsynq(
	job Job, cfg asynq.Config, begin serverStart, lock func(*redis.Client) locks.Lock,
) (stop func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: job.Redis.Addr, PoolSize: 2 * Slots})
	var held locks.Lock
	if lock != nil {
		held = lock(client)
	}
	cfg.Queues, cfg.TaskCheckInterval = job.Scenario.weights(), checkInterval
	cfg.BaseContext, cfg.DelayedTaskCheckInterval = job.Tally.Context, delayedInterval
	cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return cmp.Or(job.RetryDelay, retryDelay) }
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(job.failed)
	stopServer, err := begin(client, cfg, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p payload
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		job.Tally.Run(p.N)
		if held == nil {
			return job.Tally.Work(ctx, p.N)
		}
		var worked error
		err := held(ctx, "lock:"+p.Key, func() { worked = job.Tally.Work(ctx, p.N) })
		return errors.Join(worked, err)
	}))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return func() error { return errors.Join(stopServer(), client.Close()) }, nil
}

// failed is told every error of a handler.
func (j Job) failed(_ context.Context, _ *asynq.Task, err error) {
	if isFailure(err) && !errors.Is(err, locking.ErrHeld) {
		j.Tally.Fault(err)
	}
}
