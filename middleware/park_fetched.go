package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// ParkFetched parks a task that was refused when it was fetched, without running it, if its run would do no more than
// that after its first attempt: it may not wait in a slot, and has no limits.
func (l *lock) ParkFetched(active *line.Run, f line.Refused) bool {
	requeue, ok := l.parksFetched()
	if !ok || l.order != BestEffort { // in order, its run finds out how many stand before it
		return false
	}
	held, ok := errors.AsType[*locking.HeldError](f.Held)
	if !ok {
		return false
	}
	r := l.fetched(active, f)
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
	active.Park(held.Key, r.parkOptions(d, held), func(p line.Parked) {
		r.observeTimer(ctx)
		r.observeRefusal(ctx, held)
		r.parked(ctx, held, d, p)
	})
	return true
}

// parksFetched returns the strategy if tasks may be parked without a run.
func (l *lock) parksFetched() (requeue Requeue, ok bool) {
	requeue, ok = l.Strategy.(Requeue)
	return requeue, ok && requeue.Limits == (delayqueue.Limits{}) && requeue.Queue == ""
}

// fetched returns what stands for the run of a task that was refused when it was fetched.
func (l *lock) fetched(active *line.Run, f line.Refused) *run {
	return (&run{
		lock: l, task: asynq.NewTask(f.Type, nil), id: f.Task, active: active, keys: f.Keys, attempt: f.Attempt,
		left: f.Left, firstAt: time.Now(), refusals: 1, fetched: true,
	}).inOrder()
}

// Wait lets the script that fetches a refused task park it behind another task that is parked on the key. The first one
// is left to [lock.ParkFetched], which may leave it to its run, to be on standby. In order, all of them are parked there.
func (l *lock) Wait() colocated.Wait {
	wait := colocated.Wait{Order: l.order.recorded()}
	requeue, ok := l.parksFetched()
	if !ok {
		return wait
	}
	wait.After, wait.Most = afterExpiry, maxFallback
	if l.order == BestEffort {
		wait.Behind = 1
	}
	if requeue.Delay > 0 {
		wait.After, wait.Most = requeue.Delay, requeue.Delay
	}
	return wait
}

// Keys returns what finds the keys of a task before its run; nil if its key function may be called in the run alone.
func (l *lock) Keys() func(*asynq.Task) []string {
	if !l.early {
		return nil
	}
	return l.keysBefore
}

// keysBefore returns the keys of a task before its run; none if the run has to say what is wrong.
func (l *lock) keysBefore(task *asynq.Task) (keys []string) {
	defer func() {
		if recover() != nil {
			keys = nil
		}
	}()
	keys, _ = keysOf(context.Background(), l.Key, task, l.limits)
	return keys
}

// Parked notes tasks that were parked in this way.
func (l *lock) Parked(f line.Refused, places []line.Parked) {
	held, ok := errors.AsType[*locking.HeldError](f.Held)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	r := l.fetched(nil, f)
	d := r.Strategy.Decide(r.facts(r.firstAt, held))
	for _, p := range places {
		r.id = p.Task
		r.SlotBudget.came(true)
		r.observeRefusal(ctx, held)
		r.noteParked(ctx, held, d, p)
	}
}
