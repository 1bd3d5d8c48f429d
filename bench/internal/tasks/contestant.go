package tasks

import (
	"context"
	"slices"
	"time"
)

// checkInterval is how often an idle server of those without railtoken looks for tasks: as often as railtoken does by default,
// where asynq's own default is a second.
const checkInterval = 50 * time.Millisecond

// delayedInterval is how often it looks at delayed tasks, also as railtoken does; asynq's own default is five seconds.
const delayedInterval = time.Second

// LockTTL is how long a lock written by hand holds.
const LockTTL = 30 * time.Second

// Job is what a contestant is given.
type Job struct {
	// Addr is the redis-server.
	Addr     string
	Scenario Scenario
	Tally    *Tally
	// Retries of asynq that a task was enqueued with.
	Retries int
}

// Contestant is a way to work on tasks that want the same keys.
type Contestant struct {
	Name, Title string
	// Locks says that no two tasks of a key may run at the same time.
	Locks bool
	// Parks says that tasks in conflict are counted when they are parked.
	Parks bool
	// Refuses says that tasks in conflict are given up.
	Refuses bool
	// InOrder says that the tasks of a key are to be done in the order in which they were enqueued.
	InOrder bool
	// ByHand says that it is a pattern that people write themselves, and Timed that its tasks in conflict wait for asynq's own timer.
	ByHand, Timed bool
	// Start begins to work. stop ends it, soon: a handler that works on is broken off.
	Start func(ctx context.Context, job Job) (stop func() error, err error)
}

// All are the contestants, in the order in which they are shown.
var All = slices.Concat([]Contestant{Bare, BareDefault}, Ours, ByHand)

// Ours are railtoken with each of its strategies.
var Ours = []Contestant{Railtoken, RailtokenParks, RailtokenWait, RailtokenFailFast, RailtokenFIFO, RailtokenStrictFIFO}

// ByHand are the patterns that people write themselves.
var ByHand = []Contestant{SleepRetry, SleepRedsync, Semaphore, RetryUncounted, Retry}
