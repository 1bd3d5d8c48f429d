package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// parkRounds bounds how often a task that is refused by one key after another joins the next one's line before it parks.
const parkRounds = 8

// park notes that the task waits for the key, tries once more, because the key may have been given back just before, and
// returns either the lease or the error that makes asynq park the task.
func (r *run) park(ctx context.Context, d Decision, held *locking.HeldError) (*locking.Lease, error) {
	if r.queue == nil {
		return nil, errNoQueue
	}
	r.interest = interest + d.Delay
	if r.toQueue != "" && r.toQueue != r.id.Queue || r.lastAttempt() {
		return nil, r.move(ctx, d, held)
	}
	var parked *ConflictError
	for range parkRounds {
		place, err := r.queue.Park(ctx, r.id, held.Key, r.attempt, d.Bounds, r.before())
		parked = r.conflict(held, Parked, d.Delay)
		if err != nil {
			// Without a place in line the task's timer alone brings it back. If it was deleted, asynq finds that out.
			r.log.WarnContext(ctx, "a task could not join the line for its key; its timer will bring it back",
				"task", r.id.String(), "error", err)
			return nil, parked
		}
		parked.Conflicts, parked.Waited = place.Count, max(time.Since(place.First), 0)
		if place.Bound != delayqueue.NoBound {
			return nil, r.atBound(ctx, d, parked, place.Bound)
		}
		lease, again, err := r.try(ctx)
		if err != nil || lease != nil {
			return lease, err
		}
		if again.Key == held.Key {
			return nil, parked
		}
		held = again
	}
	return nil, parked
}

// atBound ends the waiting of a task: it is archived, or the strategy's callback has the last word.
func (r *run) atBound(ctx context.Context, d Decision, e *ConflictError, bound delayqueue.Bound) error {
	e.Outcome, e.Bound, e.RetryAfter = Archive, bound, max(e.Holder.Remaining, 0)
	if d.OnBound != nil {
		err := d.OnBound(ctx, r.task, e)
		return &boundError{conflict: e, outcome: err}
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
	var copied delayqueue.Task
	operation := func() (err error) {
		copied, err = r.queue.Move(ctx, r.id, r.task, r.delayQueue(), d.Delay, r.left, r.before())
		if errors.Is(err, delayqueue.ErrGone) || err != nil && !r.lastAttempt() {
			return backoff.Permanent(err)
		}
		return err
	}
	wait := backoff.NewExponentialBackOff(backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	err := backoff.Retry(operation, backoff.WithContext(wait, ctx))
	switch {
	case errors.Is(err, delayqueue.ErrGone):
		return &duplicateError{r.id}
	case err != nil && r.lastAttempt():
		return err
	case err != nil:
		r.log.WarnContext(ctx, "a task could not be moved to its delay queue; it waits in its own", "task", r.id.String(), "error", err)
		return r.conflict(held, Parked, d.Delay)
	}
	parked := r.conflict(held, MovedAway, d.Delay)
	if place, err := r.queue.Park(ctx, copied, held.Key, 0, d.Bounds, r.before()); err != nil {
		r.log.WarnContext(ctx, "a moved task could not join the line for its key; its timer will bring it back",
			"task", copied.String(), "error", err)
	} else {
		parked.Conflicts, parked.Waited = place.Count, max(time.Since(place.First), 0)
	}
	// The key may have been given back before the copy stood in line. This run cannot go on with it, as the copy is there.
	if lease, err := r.locker.Acquire(ctx, r.keys, r.opts); err == nil {
		_ = r.giveBack(ctx, lease)
	}
	return parked
}

// delayQueue returns the queue that the task is moved to.
func (r *run) delayQueue() string {
	if r.toQueue != "" {
		return r.toQueue
	}
	return r.id.Queue + delayqueue.Suffix
}

// before returns the conflicts that a moved task met in its own queue.
func (r *run) before() delayqueue.Conflict {
	if r.moved == nil {
		return delayqueue.Conflict{}
	}
	return r.moved.Before
}
