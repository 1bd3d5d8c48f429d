package tasks

import (
	"context"
	"errors"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// lanes is how many a contestant has.
const lanes = 64

// Package worker with some strategies.
var (
	// Railtoken has the defaults: where it can, the next task of a key waits in memory; the others are parked.
	Railtoken = ours("railtoken", nil)
	// RailtokenRecorded is the same by another name, for tables that also have RailtokenFound, whose tasks do not tell
	// their keys.
	RailtokenRecorded = ours("railtoken, keys recorded", nil)
	RailtokenFound    = found("railtoken, keys found")
	// RailtokenWait waits in the slot for up to a second before it parks.
	RailtokenWait = ours("railtoken wait", middleware.Wait{}.Then(middleware.Requeue{}))
	// RailtokenFIFO keeps each key's tasks in the order in which they were enqueued.
	RailtokenFIFO = inOrder("railtoken FIFO", middleware.Requeue{Order: middleware.FIFO})
	// RailtokenLanes and RailtokenFIFOLanes are the same in lanes of a Redis Cluster.
	RailtokenLanes     = oursIn(lanes, "railtoken in lanes", nil)
	RailtokenFIFOLanes = inOrderIn(lanes, "railtoken FIFO in lanes", middleware.Requeue{Order: middleware.FIFO})
	// RailtokenStrictFIFO does so also when a task fails, which holds up those behind it.
	RailtokenStrictFIFO = inOrder("railtoken StrictFIFO", middleware.Requeue{Order: middleware.StrictFIFO})
)

func ours(name string, strategy middleware.Strategy) Contestant { return oursIn(0, name, strategy) }

// oursIn is one in so many lanes of a Redis Cluster, or on one Redis.
func oursIn(lanes int, name string, strategy middleware.Strategy) Contestant {
	return Contestant{
		Name: name, Parks: true, Lanes: lanes,
		start: func(ctx context.Context, job Job) (func() error, error) {
			return startRailtoken(ctx, job, worker.Config{Concurrency: job.Scenario.slots(), Strategy: strategy})
		},
	}
}

func found(name string) Contestant {
	c := ours(name, nil)
	c.Found = true
	return c
}

func inOrder(name string, strategy middleware.Strategy) Contestant {
	return inOrderIn(0, name, strategy)
}

func inOrderIn(lanes int, name string, strategy middleware.Strategy) Contestant {
	c := oursIn(lanes, name, strategy)
	c.InOrder = true
	return c
}

// startRailtoken starts a worker with the rest of a configuration.
func startRailtoken(ctx context.Context, job Job, cfg worker.Config) (stop func() error, err error) {
	cfg.Redis, cfg.BaseContext, cfg.Observer = job.Redis, job.Tally.Context, job.observe
	cfg.Queues, cfg.ErrorHandler = job.Scenario.weights(), asynq.ErrorHandlerFunc(job.failed)
	return workers.Railtoken(ctx, cfg, worker.Handler[payload]{
		Keys: payload.keys, Run: func(ctx context.Context, p payload) error { return job.Tally.Work(ctx, p.N) },
	}, taskType)
}

// observe counts the runs: each ends in conflict, or has acquired the key. A task that is parked as soon as it is
// fetched has none.
func (j Job) observe(_ context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.Parked:
		j.Tally.Parked()
	case middleware.Acquired, middleware.Ended:
		n, err := strconv.Atoi(e.Task.ID)
		if err != nil {
			j.Tally.Fault(err)
			return
		}
		j.Tally.Run(n)
		conflict, ok := errors.AsType[*middleware.ConflictError](e.Err)
		if e.Kind == middleware.Ended && (!ok || conflict.Outcome != middleware.Park) {
			j.Tally.Fault(e.Err)
		}
	}
}
