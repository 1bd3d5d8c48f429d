package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// parkRounds bounds how often a task that is refused by one key after another joins the next one's line before it parks.
const parkRounds = 8

// errNoQueue is the error of a strategy that parks tasks though there is no delay queue, which Lock has ruled out.
var errNoQueue = errors.New("middleware: no delay queue is configured")

// park notes that the task waits for the key, tries once more, because the key may have been given back just before, and
// returns either the lease or the error that makes asynq park the task.
func (r *run) park(ctx context.Context, d Decision, held *locking.HeldError) (*locking.Lease, error) {
	if r.queue == nil {
		return nil, errNoQueue
	}
	d.Delay = beforeAge(d.Delay, d.Bounds)
	r.parkFor = d.Delay
	if r.order != NextFirst && d.OnBound == nil {
		d.Bounds.Waiters, d.Bounds.Total = 0, 0 // it has its place in the sequence, and must be found there
	}
	if r.toQueue != "" && r.toQueue != r.id.Queue || r.lastAttempt() {
		return nil, r.move(ctx, d, held)
	}
	parked, lease, err := r.standInLine(ctx, d, held, r.id, r.attempt, func() (*locking.Lease, *locking.HeldError, error) { return r.tryInTurn(ctx) })
	if lease != nil && r.order != NextFirst {
		r.unpark(ctx)
	}
	if err != nil || lease != nil {
		return lease, err
	}
	parked.Outcome = Parked
	if parked.Bound != delayqueue.NoBound && !waitsWithout(parked.Bound, d) {
		return nil, r.atBound(ctx, d, parked)
	}
	return nil, parked
}

// beforeAge returns the delay, but not more than the bound on age, at which the task is to be looked at.
func beforeAge(delay time.Duration, b delayqueue.Bounds) time.Duration {
	if b.Age > 0 {
		return min(delay, b.Age)
	}
	return delay
}

// waitsWithout reports whether a task at a bound waits on all the same, without a place among the waiters: when they are full, unless the
// strategy's callback is to decide.
func waitsWithout(b delayqueue.Bound, d Decision) bool {
	return d.OnBound == nil && (b == delayqueue.WaitersBound || b == delayqueue.TotalBound)
}

// standInLine puts a task in line for the key that is held, and looks once more. If it is another key now that is held, the task
// changes to the line for that one: nobody would give the first one back. It returns the conflict that remains, or what the look gave.
func (r *run) standInLine(ctx context.Context, d Decision, held *locking.HeldError, task delayqueue.Task, attempt int,
	look func() (*locking.Lease, *locking.HeldError, error),
) (*ConflictError, *locking.Lease, error) {
	for round := 1; ; round++ {
		conflict := r.conflict(held, Parked, d.Delay)
		place, err := r.queue.Park(ctx, task, held.Key, delayqueue.ParkOptions{Attempt: attempt, Bounds: d.Bounds, Before: r.before(), Look: d.Delay})
		if err != nil {
			// Without a place in line the task's timer alone brings it back. If it was deleted, asynq finds that out.
			r.log.WarnContext(ctx, "a task could not join the line for its key; its timer will bring it back",
				"task", task.String(), "error", err)
			return conflict, nil, nil
		}
		conflict.Conflicts, conflict.Waited, conflict.Bound = place.Count, max(time.Since(place.First), 0), place.Bound
		switch {
		case place.Bound == delayqueue.NoBound:
		case waitsWithout(place.Bound, d):
			r.parkFor = beforeAge(unplaced(d.Delay, place), d.Bounds)
			conflict.RetryAfter = r.parkFor
			return conflict, nil, nil
		default:
			return conflict, nil, nil
		}
		r.inLine = held.Key
		r.parkFor = beforeAge(r.fallback(d.Delay, place.Ahead), d.Bounds)
		conflict.RetryAfter = r.parkFor
		r.sleepers.decks.park(held.Key, place.Waiters, d.Places)
		lease, again, err := look()
		if err != nil || lease != nil {
			return nil, lease, err
		}
		if again == nil || again.Key == held.Key || round == parkRounds {
			return conflict, nil, nil
		}
		held = again
	}
}

// atBound ends the waiting of a task: it is archived, or the strategy's callback has the last word.
func (r *run) atBound(ctx context.Context, d Decision, e *ConflictError) error {
	e.Outcome, e.RetryAfter = Archive, max(e.Holder.Remaining, 0)
	if d.OnBound != nil {
		return &boundError{conflict: e, outcome: d.OnBound(ctx, r.task, e)}
	}
	return e
}

// boundError carries the outcome that an OnBound callback chose to the end of the run.
type boundError struct {
	conflict *ConflictError
	outcome  error
}

func (e *boundError) Error() string { return e.conflict.Error() }

// move takes a task to a delay queue: for a conflict on its last attempt asynq would archive it. Such a task has nowhere else
// to wait, so the move is tried until it succeeds or the run is over.
func (r *run) move(ctx context.Context, d Decision, held *locking.HeldError) error {
	copied, err := r.queue.Move(ctx, r.id, r.task, r.delayQueue(), d.Delay, r.retries())
	for r.lastAttempt() && err != nil && !errors.Is(err, delayqueue.ErrGone) {
		if err := r.sitOut(ctx, &r.outage, err); err != nil {
			return err
		}
		copied, err = r.queue.Move(ctx, r.id, r.task, r.delayQueue(), d.Delay, r.retries())
	}
	switch {
	case errors.Is(err, delayqueue.ErrGone):
		return &duplicateError{r.id}
	case err != nil:
		r.log.WarnContext(ctx, "a task could not be moved to its delay queue; it waits in its own", "task", r.id.String(), "error", err)
		return r.conflict(held, Parked, d.Delay)
	}
	look := func() (*locking.Lease, *locking.HeldError, error) { return nil, r.lookFor(ctx, copied), nil }
	moved, _, _ := r.standInLine(ctx, d, held, copied, 0, look)
	moved.Outcome, moved.Bound = MovedAway, delayqueue.NoBound // at a bound the copy ends when its timer brings it back
	return moved
}

// lookFor looks, for a copy that now stands in line, whether the key was given back before it did. This run cannot go on with the key, as the
// copy is there: it gives it back at once, which wakes the next in line. In order, the copy takes the place of its original.
func (r *run) lookFor(ctx context.Context, copied delayqueue.Task) *locking.HeldError {
	if r.order == NextFirst {
		lease, err := r.attemptOnce(ctx)
		if err == nil {
			_ = r.release(ctx, lease, false)
		}
		held, _ := errors.AsType[*locking.HeldError](err)
		return held
	}
	if _, err := r.askTurn(ctx, copied); err != nil {
		r.log.WarnContext(ctx, "a copy could not join the line of its key; its timer will bring it back", "task", copied.String(), "error", err)
		return nil
	}
	left := r.leaveLine(ctx, r.id, r.keys[0])
	if len(left.Next) > 0 && left.Next[0] == copied { // who has left before may have found the original to be the next
		r.wakeTasks(ctx, []delayqueue.Task{copied})
	}
	return nil
}

// delayQueue returns the queue that the task is moved to.
func (r *run) delayQueue() string {
	if r.toQueue != "" {
		return r.toQueue
	}
	return delayqueue.DelayQueue(r.id.Queue)
}

// before returns the conflicts that a moved task met in its own queue, until its handler has run.
func (r *run) before() delayqueue.Conflict {
	if r.moved == nil || r.attempt > 0 {
		return delayqueue.Conflict{}
	}
	return r.moved.Before
}
