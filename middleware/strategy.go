package middleware

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// Conflict is what a [Strategy] knows when another holder has a key of the task.
type Conflict struct {
	// Key is the key that is held, and Holder its holder. In order, when it is not this task's turn, Holder is the
	// first task of the sequence.
	Key    string
	Holder locking.Holder

	// Attempt counts the refusals in this run of the task, from 1. FirstAt is when the first of them was, Now the
	// present, and Waited the time between them.
	Attempt int
	FirstAt time.Time
	Now     time.Time
	Waited  time.Duration

	// Deadline is when asynq abandons the task; zero for never.
	Deadline time.Time

	// Standby is how many other tasks of this server are on standby for the key, or were woken for it and are on their
	// way. Reserved reports that this task was woken for the key, so that a standby place is reserved for it.
	Standby  int
	Reserved bool
	// Hold is how long the key is held on average, and Pickup how long a woken task takes to arrive; zero while
	// unknown.
	Hold, Pickup time.Duration

	// Ahead is how many tasks stand before this one in the sequence of the key, in order. At 0 it is its turn.
	Ahead int

	// MayWait is false when the task must not wait in its slot: too many do already, or the server is shutting down.
	MayWait bool
	// MayStandBy is false when a task on standby would take a slot from others: the server has fewer than four slots or
	// an unknown number of them, or none is free.
	MayStandBy bool

	hasWaited bool // a strategy before this one has used up the time in the slot
}

// Decision is what a [Strategy] decides. Only the fields that belong to its Outcome count.
type Decision struct {
	// Outcome is what becomes of the task: Archive, Retry, Discard, Park or WaitInSlot.
	Outcome Outcome

	// Delay is the time until the task tries again. With WaitInSlot the run draws from half to one and a half times of
	// it, 10 ms when it is zero, and tries earlier when the key is released. With Park see [Requeue].
	Delay time.Duration

	// WaitUntil is when waiting in the slot must end.
	WaitUntil time.Time

	// Standby, with WaitInSlot, makes the task take the key as soon as it is released instead of trying after delays.
	// StandbyLimit is how many tasks of this server may be on standby for the key. When there are so many, or
	// MayStandBy is false, the strategy is asked again, with MayWait false. A release wakes as many parked tasks as
	// StandbyLimit allows, besides one for the key itself; for that, it counts in a decision to Park too.
	Standby      bool
	StandbyLimit int

	// Limits and OnLimit are for Park: see [Requeue].
	Limits  delayqueue.Limits
	OnLimit func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error
}

// Strategy decides what happens to a task when another holder has a key of it. A strategy is a function of the
// conflict: it holds no state, starts nothing and may be shared among handlers. A strategy that wraps another one
// returns it from a method Unwrap() Strategy, as [Wait] does, so that the Order and the Queue of a [Requeue] inside
// count. Otherwise tasks run in [BestEffort] order and wait in their own queue.
type Strategy interface {
	Decide(c Conflict) Decision
}

// RequeueOf returns the Requeue at the end of a chain of strategies, whose Order and Queue count for the handler.
func RequeueOf(s Strategy) (Requeue, bool) {
	for {
		switch link := s.(type) {
		case Requeue:
			return link, true
		case *Requeue:
			return *link, true
		case interface{ Unwrap() Strategy }:
			s = link.Unwrap()
		default:
			return Requeue{}, false
		}
	}
}

// parker tells of a strategy whether it ever parks a task. One that does not say is taken to.
type parker interface{ parks() bool }

func parks(s Strategy) bool {
	p, ok := s.(parker)
	return !ok || p.parks()
}

// validator is a strategy that can be wrong.
type validator interface{ Validate() error }
