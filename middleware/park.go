package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// errNoQueue is the error of a strategy that parks tasks though there is no [delayqueue.Queue], which Lock has ruled
// out.
var errNoQueue = errors.New("middleware: no delayqueue.Queue is configured")

// park has the task wait for the key as soon as asynq acknowledges its run, and returns the error that ends the run.
func (r *run) park(ctx context.Context, d Decision, held *locking.HeldError) error {
	if r.Queue == nil {
		return errNoQueue
	}
	met := r.active.Met(r.attempt)
	met.Count++
	limit := d.Limits.Reached(delayqueue.Conflict(met))
	if limit == delayqueue.NoLimit && d.OnLimit != nil { // else a task that finds the waiters full waits all the same
		full, err := r.engine().Full(ctx, r.id, held.Key, d.Limits.Waiters, d.Limits.Total)
		if limit = delayqueue.Limit(full); err != nil {
			r.Logger.WarnContext(ctx, "the limits of a task are not known; it waits on", "task", r.id.String(), "error",
				err)
		}
	}
	conflict := r.conflict(held, Park, d.Delay)
	conflict.Conflicts, conflict.Limit = met.Count, limit
	if limit != delayqueue.NoLimit {
		return r.atLimit(ctx, d, conflict)
	}
	if r.active == nil {
		return r.parkPlainly(ctx, d, conflict)
	}
	opts := parking.ParkOptions{
		Attempt: r.attempt, MaxWaiters: d.Limits.Waiters, MaxTotal: d.Limits.Total, MaxAge: d.Limits.Age,
		RetryAfter: d.Delay, Waited: time.Since(r.firstAt), Queue: r.toQueue,
	}
	r.ordering.park(&opts, d.OnLimit != nil)
	if r.RedisKeys != nil {
		lock, mark := r.RedisKeys(held.Key)
		opts.Locks = []parking.RedisKeys{{Lock: lock, Notify: mark}}
	}
	r.active.Park(held.Key, opts, func(p parking.Parked) { r.parked(ctx, held, d, p) })
	return conflict
}

// parked notes that the task waits. When the park has not looked whether the key was released before, the locker is
// asked once more.
func (r *run) parked(ctx context.Context, held *locking.HeldError, d Decision, p parking.Parked) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	r.SlotBudget.standby.Parked(held.Key, p.Waiters, d.StandbyLimit)
	r.observe(ctx, Event{
		Kind: Parked, Task: delayqueue.Task(p.Task), Key: held.Key, Holder: known(held.Holder), Waited: r.waited(), Waiters: p.Waiters, Ahead: p.Ahead,
	})
	if !p.Looked {
		r.lookAgain(ctx, held.Key, p)
	}
}

// lookAgain looks whether a key that a task waits for was released before it did. Then it gives the key back at once,
// which wakes the next in line.
func (r *run) lookAgain(ctx context.Context, key string, p parking.Parked) {
	looking, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	if !r.ordering.looksAgain(looking, key, p.Task) {
		return
	}
	opts := r.options()
	opts.Notify += p.Timer
	lease, err := r.Locker.Acquire(looking, []string{key}, opts)
	if err != nil {
		return // it is held, or cannot be looked at: then its timer brings the task back
	}
	r.ordering.giveUp(ctx, lease)
}

const (
	// plainLeast and plainMost are how long a task waits for its next attempt when nothing can be parked.
	plainLeast = time.Second
	plainMost  = 5 * time.Second
)

// parkPlainly leaves a task to asynq's own timer, because asynq's scripts are not known. One on its last attempt, which
// asynq archives for any error, has waited in its slot for as long as it may, and is archived with the reason.
func (r *run) parkPlainly(ctx context.Context, d Decision, conflict *ConflictError) error {
	if d.Limits.Age > 0 && conflict.Waited >= d.Limits.Age {
		conflict.Limit = delayqueue.AgeLimit
		return r.atLimit(ctx, d, conflict)
	}
	if r.lastAttempt() {
		conflict.Outcome, conflict.RetryAfter = Archive, max(conflict.Holder.Remaining, 0)
		return conflict
	}
	conflict.RetryAfter = plainLeast + rand.N(plainMost-plainLeast)
	return conflict
}

// nowhere reports whether the task has no place to wait in but its slot: it cannot be parked, and asynq archives it for
// any error.
func (r *run) nowhere() bool { return r.active == nil && r.lastAttempt() }

// stay returns how a task that is to be parked, and has nowhere to wait in, waits on in its slot: until a moment before
// asynq gives it up, or to the limit on its age. When it cannot, that is d.
func (r *run) stay(ctx context.Context, d Decision) Decision {
	until, ok := ctx.Deadline()
	if until = until.Add(-defaultMargin); !ok {
		until = r.firstAt.Add(maxFallback)
	}
	if limit := r.firstAt.Add(d.Limits.Age); d.Limits.Age > 0 && limit.Before(until) {
		until = limit
	}
	if r.Queue == nil || !r.nowhere() || !time.Now().Before(until) {
		return d
	}
	return Decision{Outcome: WaitInSlot, WaitUntil: until, Delay: growing(defaultInitial, plainLeast, r.refusals)}
}

// atLimit ends the waiting of a task: it is archived, or the strategy's callback has the last word.
func (r *run) atLimit(ctx context.Context, d Decision, e *ConflictError) error {
	e.Outcome, e.RetryAfter = Archive, max(e.Holder.Remaining, 0)
	if err := r.engine().Forget(ctx, r.id); err != nil {
		r.Logger.WarnContext(ctx, "the conflicts of a task at a limit count on when it is run again by hand", "task",
			r.id.String(), "error", err)
	}
	if d.OnLimit != nil {
		return &limitError{conflict: e, outcome: d.OnLimit(ctx, r.task, e)}
	}
	return e
}

// limitError carries the outcome that an OnLimit callback chose to the end of the run.
type limitError struct {
	conflict *ConflictError
	outcome  error
}

func (e *limitError) Error() string { return e.conflict.Error() }
