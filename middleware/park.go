package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
)

// errNoQueue is returned when a strategy parks a task but there is no [delayqueue.Queue]. Lock rules this out for the
// strategies that it knows.
var errNoQueue = errors.New("middleware: no delayqueue.Queue is configured")

// park has the task parked as soon as asynq acknowledges its run, and returns the error that ends the run.
func (r *run) park(ctx context.Context, d Decision, held *locking.HeldError) error {
	if r.Queue == nil {
		return r.undecided(ctx, held, errNoQueue)
	}
	met := r.active.Met(r.attempt)
	met.Count++
	limit := d.Limits.Reached(delayqueue.Conflict(met))
	if limit == delayqueue.NoLimit && d.OnLimit != nil { // without OnLimit, the task waits despite a limit on waiters
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
	r.active.Outdated(ctx, r.keys)
	r.active.Park(held.Key, r.parkOptions(d, held), func(p line.Parked) {
		r.parked(ctx, held, p)
		if d.Supersede != nil && !p.Free {
			r.supersede(ctx, d.Supersede, held.Key)
		}
	})
	return conflict
}

// parkOptions returns how the task waits.
func (r *run) parkOptions(d Decision, held *locking.HeldError) line.ParkOptions {
	opts := line.ParkOptions{
		Also: r.also, Attempt: r.attempt, MaxWaiters: d.Limits.Waiters, MaxTotal: d.Limits.Total, MaxAge: d.Limits.Age,
		RetryAfter: d.Delay, Waited: time.Since(r.firstAt), Queue: r.toQueue, Foremost: r.foremost(d.Supersede),
	}
	r.seq.park(&opts, d.OnLimit != nil)
	if r.RedisKeys != nil {
		if r.early {
			opts.Record = r.keys
		}
		for _, key := range append([]string{held.Key}, r.also...) {
			lock, mark := r.RedisKeys(key)
			opts.Locks = append(opts.Locks, line.RedisKeys{Lock: lock, Notify: mark})
		}
	}
	return opts
}

// parked notes that the task has been parked. If parking did not include a look whether a key was released in the
// meantime, parked asks the locker.
func (r *run) parked(ctx context.Context, held *locking.HeldError, p line.Parked) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	r.noteParked(ctx, held, p)
	if !p.Looked {
		for _, key := range append([]string{held.Key}, r.also...) {
			r.lookAgain(ctx, key, p)
		}
	}
}

// noteParked notes how many tasks wait, and reports that the task was parked.
func (r *run) noteParked(ctx context.Context, held *locking.HeldError, p line.Parked) {
	r.observe(ctx, &Event{
		Kind: Parked, Task: delayqueue.Task(p.Task), Key: held.Key, Holder: known(held.Holder),
		Waited: r.waited(), Waiters: p.Waiters, Ahead: p.Ahead, Fetched: r.fetched,
	})
}

// lookAgain checks whether a key was released before the task was among its waiters. If it was, lookAgain releases it
// again at once, and has the task come back, whoever has subscribed to the release: this task has not, if its Gate had refused it.
func (r *run) lookAgain(ctx context.Context, key string, p line.Parked) {
	looking, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	if !r.seq.looksAgain(looking, key, p.Task) {
		return
	}
	opts := r.options()
	opts.Notify += p.Timer
	lease, err := r.Locker.Acquire(looking, []string{key}, opts)
	if _, ok := errors.AsType[*locking.HeldError](err); ok {
		return
	}
	if err != nil {
		if mayPass(err) { // its state is not known; after another error, which a woken task may meet again and again, its timer brings it back
			r.wakeUnseen(ctx, key)
		}
		return
	}
	if r.seq != nil {
		r.giveUp(ctx, lease)
		return
	}
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locking.ErrLost) {
		r.warnOfKept(ctx, lease, err)
	}
	woken, _ := retry(ctx, r, notWoken, func(ctx context.Context) (line.Woken, error) { return r.engine().ComeBack(ctx, key, p.Task) })
	r.observeWoken(ctx, key, woken.Tasks)
}

// wakeUnseen wakes the next task of a key that may be free. If it is held, that task is refused, and waits again.
func (r *run) wakeUnseen(ctx context.Context, key string) {
	woken, err := r.engine().WakeNext(ctx, key, line.WakeOptions{})
	if err != nil {
		r.Logger.WarnContext(ctx, "waking the next task failed", "result", notWoken, "task", r.id.String(), "keys",
			logsafe.Keys([]string{key}), "error", err)
	}
	r.observeWoken(ctx, key, woken.Tasks)
}

const (
	// plainLeast and plainMost limit the time until the next attempt of a task that cannot be parked.
	plainLeast = time.Second
	plainMost  = 5 * time.Second
)

// parkPlainly leaves a task to asynq's own timer, because the version of asynq is unknown. A task on its last attempt,
// which asynq archives for any error, has already waited in its slot for as long as it may. It is archived with the
// reason.
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

// stay changes the decision to park a task that can wait only in its slot: it waits there until a moment before asynq
// abandons it, or until the limit on its age. If that is not possible, stay returns d.
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

// atLimit ends the wait of a task: it is archived, unless the strategy's OnLimit decides otherwise.
func (r *run) atLimit(ctx context.Context, d Decision, e *ConflictError) error {
	e.Outcome, e.RetryAfter = Archive, max(e.Holder.Remaining, 0)
	if err := r.engine().Forget(ctx, r.id); err != nil {
		r.Logger.WarnContext(ctx, "the conflict count of a task at a limit was not reset, and counts if it is run again by hand", "task",
			r.id.String(), "error", err)
	}
	if d.OnLimit != nil {
		return &limitError{conflict: e, outcome: d.OnLimit(ctx, r.task, e)}
	}
	return e
}
