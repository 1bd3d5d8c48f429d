package tasks

import (
	"context"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/worker"
)

// masters is how many a Redis Cluster has.
const masters = 3

// Job is what a contestant is given.
type Job struct {
	// Redis is where the tasks are.
	Redis    worker.Redis
	Scenario Scenario
	Tally    *Tally
	// RetryDelay is how long asynq waits before each retry, a second when 0.
	RetryDelay time.Duration
}

// end breaks off the handlers that work on, and ends the servers.
func (j Job) end(stop func() error) error {
	j.Tally.End()
	return stop()
}

// start begins to work on a job. stop ends it, soon: a handler that works on is broken off.
type start func(ctx context.Context, job Job) (stop func() error, err error)

// Contestant is a way to work on tasks that want the same keys.
type Contestant struct {
	Name string
	// Parks says that tasks in conflict are parked. The tasks are enqueued with their keys, as a Producer does that knows
	// their key functions.
	Parks bool
	// Found says that the tasks are enqueued without their keys all the same: the server finds these in the tasks.
	Found bool
	// InOrder says that the tasks of a key must be done in the order in which they were enqueued. That records no keys.
	InOrder bool
	// Timed says that tasks in conflict wait for asynq's own timer.
	Timed bool
	// Lanes has the contestant work on a Redis Cluster of three masters, in so many lanes; 0 for one Redis.
	Lanes int

	start start
}

// servers starts the servers of a contestant.
func (c Contestant) servers(ctx context.Context, dir string) (all []*server.Server, at worker.Redis, err error) {
	if c.Lanes == 0 {
		one, err := server.Start(ctx, dir)
		if err != nil {
			return nil, at, err
		}
		return []*server.Server{one}, worker.Redis{Addr: one.Addr()}, nil
	}
	all, err = server.StartCluster(ctx, dir, masters)
	at.Lanes = c.Lanes
	for _, one := range all {
		at.Cluster = append(at.Cluster, one.Addr())
	}
	return all, at, err
}

// The contestants, in the order in which they are shown: asynq without locks, railtoken with its strategies, and the
// patterns that people write themselves.
var (
	All    = slices.Concat([]Contestant{Bare}, Ours, ByHand)
	Ours   = []Contestant{Railtoken, RailtokenWait, RailtokenFIFO, RailtokenStrictFIFO}
	ByHand = []Contestant{SleepRetry, SleepRedsync, Retry}
)
