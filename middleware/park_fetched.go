package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/fused"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// Wait returns how tasks wait that are parked as they are fetched: with a Requeue that has no order and no limits, where
// a run would do no more than that.
func (l *lock) Wait() (none fused.Wait) {
	requeue, ok := l.Strategy.(Requeue)
	switch {
	case !ok || requeue.Order != BestEffort || requeue.Limits != (delayqueue.Limits{}) || requeue.Queue != "":
		return none
	case requeue.Delay > 0:
		return fused.Wait{After: requeue.Delay, Most: requeue.Delay}
	default:
		return fused.Wait{After: afterExpiry, Most: maxFallback} // as defaultDelay
	}
}

// Fetched notes that a task was parked as it was fetched.
func (l *lock) Fetched(active *parking.Run, f parking.ParkedTask) {
	held, ok := errors.AsType[*locking.HeldError](f.Held)
	if !ok {
		return
	}
	r := &run{
		lock: l, task: asynq.NewTask(f.Type, nil), id: f.Task, active: active, keys: f.Keys, attempt: f.Attempt,
		firstAt: time.Now(), refusals: 1,
	}
	r.ordering = bestEffort{r}
	r.SlotBudget.came(true)
	ctx := context.Background()
	r.observeTimer(ctx)
	r.observeRefusal(ctx, held)
	r.parked(ctx, held, r.Strategy.Decide(r.facts(r.firstAt, held)), f.Parked)
}
