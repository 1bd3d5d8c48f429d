package middleware

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// decide asks the strategy about a conflict, and replaces a decision that cannot be carried out.
func (r *run) decide(ctx context.Context, held *locking.HeldError) Decision {
	now := time.Now()
	if r.refusals == 0 {
		r.firstAt = now
	}
	r.refusals++
	r.observeRefusal(ctx, held)
	c := r.facts(now, held)
	c.Deadline, _ = ctx.Deadline()
	c.MayWait = (r.waiting || r.SlotBudget.hasRoom()) && !r.isStopping()
	d := r.Strategy.Decide(c)
	if d.Outcome == WaitInSlot && !r.waiting {
		if r.waiting = r.SlotBudget.take(); !r.waiting { // another task was faster
			c.MayWait = false
			d = r.Strategy.Decide(c)
		}
	}
	if d.Outcome == WaitInSlot && (!c.MayWait || !d.WaitUntil.After(now)) {
		d = Requeue{}.Decide(c) // the strategy is a user's that would fill the slots, or spin
		if r.Queue == nil {
			d = Decision{Outcome: Retry}
		}
	}
	if r.order != BestEffort {
		d.Supersede = nil
	}
	if d.Outcome == Park && d.Delay <= 0 {
		d.Delay = defaultDelay(held.Holder)
	}
	return d
}

// facts returns what a strategy is told about a conflict, except the task's deadline and whether it may wait.
func (r *run) facts(now time.Time, held *locking.HeldError) Conflict {
	return Conflict{
		Type: r.task.Type(), Key: held.Key, Holder: held.Holder, Attempt: r.refusals, FirstAt: r.firstAt,
		Now: now, Waited: now.Sub(r.firstAt), Ahead: r.seq.ahead(),
	}
}
