package tasks

import (
	"context"
	"slices"
	"time"
)

// Job is what a contestant is given.
type Job struct {
	// Addr is the redis-server.
	Addr     string
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

	start start
}

// The contestants, in the order in which they are shown: asynq without locks, railtoken with its strategies, and the
// patterns that people write themselves.
var (
	All    = slices.Concat([]Contestant{Bare}, Ours, ByHand)
	Ours   = []Contestant{Railtoken, RailtokenWait, RailtokenFIFO, RailtokenStrictFIFO}
	ByHand = []Contestant{SleepRetry, SleepRedsync, Retry}
)
