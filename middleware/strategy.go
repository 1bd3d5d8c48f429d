package middleware

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// Conflict is what a [Strategy] knows about a task that was refused a key.
type Conflict struct {
	// Type is the type of the task.
	Type string

	// Key is the key that is held, and Holder its holder. When tasks run in order and another task is before this one,
	// Holder describes the first task of the sequence.
	Key    string
	Holder locking.Holder

	// Attempt counts the refusals in this run of the task, from 1. FirstAt is the time of the first refusal in this run,
	// Now the current time, and Waited the difference. Waits of earlier runs do not count: Limits limits the whole wait.
	Attempt int
	FirstAt time.Time
	Now     time.Time
	Waited  time.Duration

	// Deadline is the deadline of the run, after which asynq abandons the task; zero if there is none.
	Deadline time.Time

	// Ahead is the number of tasks before this one in the sequence of the key; always 0 in BestEffort order.
	Ahead int

	// MayWait is false if the task must not wait in its slot: the SlotBudget is used up, or the server is shutting
	// down.
	MayWait bool
}

// Decision is what a [Strategy] decides. Fields that do not belong to the Outcome are ignored.
type Decision struct {
	// Outcome is Archive, Retry, Discard, Complete, Park or WaitInSlot. Any other value is an error: a handler's task fails with
	// it, and a producer does not enqueue the task.
	Outcome Outcome

	// Delay is the time until the task tries again. With Park, it works like the Delay of [Requeue], whose default
	// applies when it is zero or negative. With WaitInSlot, the actual delay is random, between half and one and a half
	// times Delay, or around 10 ms when Delay is zero or negative; a release of the key ends it early.
	Delay time.Duration

	// WaitUntil is when a task with WaitInSlot stops waiting; WaitInSlot requires it. If WaitUntil is zero or has passed,
	// or if MayWait is false, the task is parked as the zero Requeue would park it. Without a Queue, its Outcome is then
	// Retry.
	WaitUntil time.Time

	// With Park, Supersede, if not nil, has the holders of the task's keys stop, and the task wait before all others: see [Supersede].
	// It has no effect in order. A strategy of your own should wrap a [Supersede]: without one in its chain a run yields to each task
	// that supersedes its group, also to one that was refused before it.
	Supersede *Supersede

	// With Park, Limits and OnLimit work like those of [Requeue].
	Limits  delayqueue.Limits
	OnLimit func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error
}

// Strategy decides what happens to a task when another holder has one of its keys. Decide must depend on the conflict
// alone, and must be safe for concurrent use: one strategy may serve many handlers.
//
// A strategy that wraps another one returns it from a method Unwrap() Strategy, as [Wait] does. This makes the Order
// and the Queue of an inner [Requeue] effective. Without it tasks run in [BestEffort] order and wait in their own
// queue.
//
// A strategy needs [Options].Queue, unless it is [FailFast] or its chain of wrapped strategies ends in FailFast. If it
// has a method Validate() error, [Lock] calls it and returns the error.
type Strategy interface {
	Decide(c Conflict) Decision
}

// parker is a strategy that reports whether it ever parks a task. Any other strategy is assumed to park.
type parker interface{ parks() bool }

func parks(s Strategy) bool {
	p, ok := s.(parker)
	return !ok || p.parks()
}

// needsQueue reports whether a strategy, or the last one of its chain, may park tasks.
func needsQueue(s Strategy) bool {
	if link, ok := s.(interface{ Unwrap() Strategy }); ok {
		return needsQueue(link.Unwrap())
	}
	return parks(s)
}

// validator is a strategy with options that can be invalid.
type validator interface{ Validate() error }
