package tasks

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/locking"
)

// Bare is asynq without any lock, with as many slots as there are keys: the ideal of one task at a time for each key.
// Tasks of one key do overlap.
var Bare = Contestant{Name: "bare", Start: func(_ context.Context, job Job) (func() error, error) {
	cfg := asynq.Config{
		Queues: job.Scenario.weights(), Concurrency: job.Scenario.Bare, TaskCheckInterval: checkInterval,
	}
	return startAsynq(job, cfg, workers.Stock, func(ctx context.Context, _ *redis.Client, p payload) error {
		return job.Tally.Work(ctx, p.N)
	})
}}

// payload is what each task carries.
type payload struct {
	N   int    `json:"n"`
	Key string `json:"key"`
}

func (p payload) keys() []string { return []string{p.Key} }

// handler works on a task, with a client for its lock.
type handler func(ctx context.Context, client *redis.Client, p payload) error

// startAsynq starts an asynq server that start makes, with the rest of a configuration.
func startAsynq(
	job Job, cfg asynq.Config,
	start func(redis.UniversalClient, asynq.Config, asynq.Handler) (stop func() error, err error), handle handler,
) (stop func() error, err error) {
	client := redis.NewClient(&redis.Options{Addr: job.Addr, PoolSize: 2 * Slots})
	cfg.DelayedTaskCheckInterval = delayedInterval
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(job.failed)
	stopServer, err := start(client, cfg, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p payload
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		job.Tally.Run(p.N)
		ctx, cancel := job.Tally.During(ctx)
		defer cancel()
		return handle(ctx, client, p)
	}))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return func() error { return errors.Join(stopServer(), client.Close()) }, nil
}

// failed is told every error of a handler, before asynq decides what becomes of the task: on its last attempt it is
// archived.
func (j Job) failed(ctx context.Context, task *asynq.Task, err error) {
	var p payload
	if json.Unmarshal(task.Payload(), &p) != nil {
		return
	}
	if !errors.Is(err, errRefused) && !errors.Is(err, locking.ErrHeld) {
		j.Tally.Fault(err)
	}
	retried, _ := asynq.GetRetryCount(ctx)
	if most, ok := asynq.GetMaxRetry(ctx); ok && retried >= most || errors.Is(err, asynq.SkipRetry) {
		j.Tally.Lost(p.N)
	}
}
