package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// ParkFetched parks a task without a run that was refused when it was fetched, if its run would do no more than that
// after its first attempt: it may not wait in a slot, and has no limits.
func (l *lock) ParkFetched(active *parking.Run, f parking.Refused) bool {
	requeue, ok := l.Strategy.(Requeue)
	if !ok || requeue.Order != BestEffort || requeue.Limits != (delayqueue.Limits{}) || requeue.Queue != "" {
		return false
	}
	held, ok := errors.AsType[*locking.HeldError](f.Held)
	if !ok {
		return false
	}
	r := &run{
		lock: l, task: asynq.NewTask(f.Type, nil), id: f.Task, active: active, keys: f.Keys, attempt: f.Attempt,
		left: f.Left, firstAt: time.Now(), refusals: 1,
	}
	r.ordering = bestEffort{r}
	if len(r.keys) > 1 && r.active.Met(r.attempt).Count+r.refusals >= collectAfter {
		return false
	}
	c := r.facts(r.firstAt, held)
	c.MayWait, c.MayStandBy = r.SlotBudget.hasRoom(), r.SlotBudget.hasSpare(1)
	d := requeue.Decide(c)
	if d.Outcome != Park || r.isStopping() {
		return false
	}
	r.SlotBudget.came(true)
	ctx := context.Background()
	active.Park(held.Key, r.parkOptions(d, held), func(p parking.Parked) {
		r.observeTimer(ctx)
		r.observeRefusal(ctx, held)
		r.parked(ctx, held, d, p)
	})
	return true
}
