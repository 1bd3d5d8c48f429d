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
// that after its first attempt: it may not wait in a slot, and has no limits. If its keys are held briefly by a task of this
// server, it waits in memory for their lease first.
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
	if r.isStopping() {
		return false
	}
	var turn <-chan *locking.Lease
	var leave func()
	// The script leaves only tasks that are first in line. Elsewhere, only a task that was woken is known to be.
	together := l.colocated && l.engine().Together(f.Task.Queue, f.Keys...)
	follows := (together || f.Woken) && l.mayFollow(l.meanHold()) && (held.Holder.Since.IsZero() || time.Since(held.Holder.Since) <= longHold)
	if follows {
		turn, leave, follows = locks.Succeed(l.Locker, r.keys, r.options())
	}
	if f.Woken && !follows && !f.Sure() { // its run finds out whether its keys are those that were recorded
		return false
	}
	d := requeue.Decide(r.facts(r.firstAt, held))
	ctx := context.Background()
	active.Park(held.Key, r.parkOptions(d, held), func(p line.Parked) {
		r.observeTimer(ctx)
		r.observeRefusal(ctx, held)
		r.parked(ctx, held, p)
	})
	if follows {
		active.Follow(func(ctx context.Context) colocated.Held { return r.follow(ctx, held, turn, leave) })
	}
	return true
}

const (
	// shortHold and longHold limit how long a handler takes for which a task waits in memory. While a shorter one runs, no other
	// task can come, and besides a longer one the time that it takes to wake a task is negligible.
	shortHold = time.Millisecond
	longHold  = 250 * time.Millisecond
	// followMost is how long a task waits in memory.
	followMost = 500 * time.Millisecond
)

// mayFollow reports whether a task may wait in memory for the end of a handler that takes so long.
func (l *lock) mayFollow(hold time.Duration) bool {
	_, parks := l.parksFetched()
	return parks && l.order == BestEffort && hold >= shortHold && hold <= longHold
}

// follow waits for the lease of the holder whose successor the task is.
func (r *run) follow(ctx context.Context, held *locking.HeldError, turn <-chan *locking.Lease, leave func()) colocated.Held {
	timer := time.NewTimer(followMost)
	defer timer.Stop()
	var lease *locking.Lease
	select {
	case lease = <-turn:
	case <-timer.C:
		leave()
	case <-ctx.Done():
		leave()
	}
	select {
	case lease = <-turn: // it came at the last moment
	default:
	}
	if lease == nil {
		return nil
	}
	r.observeTimer(ctx)
	r.observeRefusal(ctx, held)
	return adopted{lease, r.lock, !r.engine().Together(r.id.Queue, r.keys...), r.firstAt, time.Now()}
}

// LockFetched makes one attempt to lock the keys of a task before its run. A Locker of users that panics does so in the run.
func (l *lock) LockFetched(ctx context.Context, t line.Task, kind string, keys []string) (held colocated.Held, refused *colocated.Refused) {
	defer func() {
		if recover() != nil {
			held, refused = nil, nil
		}
	}()
	lease, err := l.Locker.Acquire(ctx, keys, l.optionsOf(kind, t))
	if err == nil {
		return adopted{Lease: lease, by: l, apart: true}, nil
	}
	if _, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, &colocated.Refused{Keys: keys, Held: err}
	}
	return nil, nil
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
// is left to [lock.ParkFetched], which may keep it in memory. In order, all of them are parked there.
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
	for _, p := range places {
		r.id = p.Task
		r.observeRefusal(ctx, held)
		r.noteParked(ctx, held, p)
	}
}
