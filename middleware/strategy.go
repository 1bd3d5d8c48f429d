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
	// Key is the key that is held, and Holder who has it. In order, Holder is the task first in line when it is not this one's turn.
	Key    string
	Holder locking.Holder

	// Attempt counts the refusals in this run of the task, from 1. FirstAt is when the first of them was, Now the
	// present; Waited is the time between them.
	Attempt int
	FirstAt time.Time
	Now     time.Time
	Waited  time.Duration

	// Deadline is when asynq abandons the task; zero for never.
	Deadline time.Time

	// Standby is how many tasks of this server wait in their slots for the key, or were woken for it and are on their way; this one is
	// not among them. Promised says that this one was woken for the key, and a place kept for it.
	Standby  int
	Promised bool
	// Hold is how long the key is held on average, and Pickup how long a task that was woken takes to arrive; zero when that is
	// not known yet.
	Hold, Pickup time.Duration

	// Ahead is how many tasks stand before this one in the line of the key, when its tasks run in order. At 0 it is its turn.
	Ahead int

	// MayWait is false when the task must not wait in its slot: too many do already, or the server is shutting down.
	MayWait bool
	// MayStandBy is false when the slot of a task on standby would be missing to others: the server has fewer than four slots or an unknown
	// number of them, or none is free.
	MayStandBy bool

	hasWaited bool // a strategy before this one has used up the time in the slot
}

// Action is what happens to a task in conflict.
type Action int

// The actions.
const (
	// Fail ends this run with an error that says who holds which key.
	Fail Action = iota
	// WaitInSlot tries again after a delay, or as soon as the key is given back.
	WaitInSlot
	// Park puts the task in asynq's retry set, in which it waits for the key, and frees the slot.
	Park
)

// Decision is what a [Strategy] answers. Only the fields of its Action count.
type Decision struct {
	Action Action

	// Outcome is what asynq does with a task that fails.
	Outcome Outcome

	// Backoff and WaitUntil are for WaitInSlot: the delays between attempts, and when the waiting must end.
	Backoff   Backoff
	WaitUntil time.Time

	// Standby, for WaitInSlot, has the task wait on deck: it stands in line for the key and takes it as soon as it is given back,
	// instead of trying after delays. Places is how many tasks of this server may be on deck for the key; when all places are
	// taken, or MayStandBy is false, the strategy is asked again, with MayWait false. A release wakes parked tasks for the Places that are free, besides one for the
	// key itself; for that, Places counts in a decision to Park too.
	Standby bool
	Places  int

	// Delay, Bounds and OnBound are for Park: see [Requeue].
	Delay   time.Duration
	Bounds  delayqueue.Limits
	OnBound func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error
}

// Strategy decides what happens to a task when another holder has a key of it. A strategy is a function of the conflict: it
// holds no state, starts nothing and may be shared among handlers. The order of the tasks is that of a [Requeue], alone or behind a
// [Wait]; with any other strategy, also one that asks a Requeue for its decisions, it is [BestEffort].
type Strategy interface {
	Decide(c Conflict) Decision
}

// DelayQueuer is a [Strategy] whose parked tasks wait and run in another queue. It must always name the same queue.
type DelayQueuer interface {
	// DelayQueue returns the queue's name, or "" when tasks wait in the one that they are in.
	DelayQueue() string
}

func delayQueue(s Strategy) string {
	if q, ok := s.(DelayQueuer); ok {
		return q.DelayQueue()
	}
	return ""
}

// parker tells of a strategy whether it ever parks a task. One that does not say is taken to.
type parker interface{ parks() bool }

func parks(s Strategy) bool {
	p, ok := s.(parker)
	return !ok || p.parks()
}

// validator is a strategy that can be wrong.
type validator interface{ Validate() error }
