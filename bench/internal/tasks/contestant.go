package tasks

import (
	"context"
	"slices"
	"time"
)

// checkInterval is how often an idle server of those without railtoken looks for tasks, and delayedInterval how often
// it looks at delayed tasks: as often as railtoken does by default. asynq's own defaults are 1 s and 5 s.
const (
	checkInterval   = 50 * time.Millisecond
	delayedInterval = time.Second
)

// LockTTL is how long a lock written by hand holds.
const LockTTL = 30 * time.Second

// Job is what a contestant is given.
type Job struct {
	// Addr is the redis-server.
	Addr     string
	Scenario Scenario
	Tally    *Tally
	// Retries of asynq that a task was enqueued with, and RetryDelay before each, a second when 0.
	Retries    int
	RetryDelay time.Duration
}

// end breaks off the handlers that work on, and ends the servers.
func (j Job) end(stop func() error) error {
	j.Tally.End()
	return stop()
}

// Contestant is a way to work on tasks that want the same keys.
type Contestant struct {
	Name string
	// Locks says that no two tasks of a key may run at the same time.
	Locks bool
	// Parks says that tasks in conflict are counted when they are parked.
	Parks bool
	// InOrder says that the tasks of a key must be done in the order in which they were enqueued.
	InOrder bool
	// Recorded says that the tasks are enqueued with their keys, as a Producer does that knows their key functions.
	Recorded bool
	// Timed says that tasks in conflict wait for asynq's own timer.
	Timed bool
	// Start begins to work. stop ends it, soon: a handler that works on is broken off.
	Start func(ctx context.Context, job Job) (stop func() error, err error)
}

// The contestants, in the order in which they are shown: asynq without locks, railtoken with each of its strategies,
// and the patterns that people write themselves.
var (
	All    = slices.Concat([]Contestant{Bare}, Ours, ByHand)
	Ours   = []Contestant{Railtoken, RailtokenParks, RailtokenWait, RailtokenFailFast, RailtokenFIFO, RailtokenStrictFIFO}
	ByHand = []Contestant{SleepRetry, SleepRedsync, Semaphore, RetryUncounted, Retry}
)
