package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/tasklimits"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// afterExpiry is how long after the end of a holder's lease a parked task tries again by itself.
	afterExpiry = time.Second
	// defaultStandby is how many tasks of a server may be on standby for one key by default.
	defaultStandby = 4
	// standbyTime is how long a task is on standby before it parks after all.
	standbyTime = 500 * time.Millisecond
	// standbyShare is the share of the time left to a task for which it may be on standby: one part in so many. asynq
	// has begun to count the task's timeout, which is meant for its handler.
	standbyShare = 100
	// maxFallback is the default Delay when a holder's lease has no end.
	maxFallback = tasklimits.MaxTTL
)

// Requeue parks a task in conflict and frees its worker slot. The release of the key wakes the task. A conflict is not
// a failure: it uses up no retry, even on the last attempt. The zero value has every default.
//
// For a key that is held briefly the next task waits in its slot, on standby, so that no time is lost between two
// tasks. Such a wait is limited to half a second, to a hundredth of the time that the task has left, and by the
// server's [SlotBudget]; it takes no slot that other tasks want. A key has no standby when it is held for more than a
// quarter of a second on average, or its present holder has had it for so long.
type Requeue struct {
	// Standby is how many tasks of a server may wait in their slots for one key; 4 when zero, none when negative. As
	// many do as it takes to bridge the time in which a woken task arrives: usually one. In order, only the next task
	// does.
	Standby int

	// Delay is when a parked task tries again if no wake comes. When zero, it is a second after the end of the holder's
	// lease: if the holder crashes, the key is free by then. It is rounded up, because asynq keeps whole seconds. Tasks
	// with others before them try later, the further back the later, up to 10 min, or 20 ms for each of more than 30
	// 000 tasks. The limit on age caps it, because a task at that limit must be looked at.
	Delay time.Duration

	// Limits bounds the waiting; no limit is set by default, because asynq keeps only 9 999 archived tasks of a queue
	// and deletes the others. A task at the limit on conflicts or age is archived, with a [ConflictError] that says
	// which one. A task that finds the waiters full (Waiters, Total) is not: it waits for its own timer alone, which is
	// longer each time, up to 10 min, or more when many tasks wait. In order, every task has a position all the same.
	Limits delayqueue.Limits

	// OnLimit, when not nil, decides what becomes of a task at any limit. Its error is the outcome of the run: nil
	// completes the task, and the conflict itself archives it with its reason.
	OnLimit func(ctx context.Context, task *asynq.Task, conflict *ConflictError) error

	// Order is the order in which the tasks of a key run; [BestEffort] when zero. All handlers that work on a key must
	// use the same one, and a task in order has one key.
	Order Order

	// Queue, when not empty, is the queue in which tasks in conflict wait and run from then on, with their IDs,
	// uniqueness locks and counts, for example for workers of its own. By default a task stays in its queue. It needs
	// all queues on one Redis, and does not work on a Redis Cluster.
	Queue string
}

// Decide returns WaitInSlot for a task on standby, and Park for any other.
func (r Requeue) Decide(c Conflict) Decision {
	d := Decision{Outcome: Park, StandbyLimit: r.standbyLimit(c), Delay: cmp.Or(r.Delay, defaultDelay(c.Holder)), Limits: r.Limits, OnLimit: r.OnLimit}
	until := c.FirstAt.Add(standbyFor(c))
	if c.MayWait && c.MayStandBy && !c.hasWaited && c.Ahead <= 1 && d.StandbyLimit > 0 &&
		(c.Reserved || c.Standby < d.StandbyLimit) && c.Now.Before(until) {
		d.Outcome, d.Standby, d.WaitUntil = WaitInSlot, true, until
	}
	return d
}

// defaultDelay returns the time until a parked task tries again by itself: until a moment after the holder's lease ends.
func defaultDelay(h locking.Holder) time.Duration {
	if h.Remaining < 0 {
		return maxFallback
	}
	return min(h.Remaining, maxFallback-afterExpiry) + afterExpiry
}

// standbyLimit returns how many tasks may be on standby: none while the key is held for longer than it usually is, or
// where tasks wait in their slots in another way.
func (r Requeue) standbyLimit(c Conflict) int {
	if c.hasWaited || c.Hold > standbyFor(c) || !c.Holder.Since.IsZero() && c.Now.Sub(c.Holder.Since) > standby.LongHold {
		return 0
	}
	return standby.Limit(c.Hold, c.Pickup, cmp.Or(r.Standby, defaultStandby))
}

// standbyFor returns how long a task may be on standby since its first refusal.
func standbyFor(c Conflict) time.Duration {
	if c.Deadline.IsZero() {
		return standbyTime
	}
	return min(standbyTime, c.Deadline.Sub(c.FirstAt)/standbyShare)
}

// Validate returns every fault of the strategy at once, or nil.
func (r Requeue) Validate() error {
	var errs []error
	if r.Delay < 0 {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Delay is %v: it cannot be negative", r.Delay))
	}
	if r.Order < BestEffort || r.Order > StrictFIFO {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Order is %d: use BestEffort, FIFO or StrictFIFO", r.Order))
	}
	if r.Queue != "" && strings.TrimSpace(r.Queue) == "" {
		errs = append(errs, fmt.Errorf("middleware: Requeue.Queue is %q: a queue's name cannot be blank", r.Queue))
	}
	return errors.Join(append(errs, r.Limits.Validate())...)
}

func (Requeue) parks() bool { return true }
