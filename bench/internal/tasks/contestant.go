package tasks

import (
	"context"
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
	// Start begins to work. stop ends it, soon: a handler that works on is broken off.
	Start func(ctx context.Context, job Job) (stop func() error, err error)
}

// All are the contestants, in the order in which they are shown.
var All = []Contestant{Bare, BareDefault, Railtoken, RailtokenWait, SleepRetry, RetryUncounted, Retry}
