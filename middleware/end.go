package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// ended reports a run that ends without the lock, and returns the error for asynq.
func (r *run) ended(ctx context.Context, err error) error {
	limit, atLimit := errors.AsType[*limitError](err)
	if atLimit {
		r.active.Limited()
		r.seq.quit(ctx)
		r.endedIn(ctx, limit.conflict)
		r.keepReason(ctx, limit.outcome)
		return limit.outcome
	}
	conflict, ok := errors.AsType[*ConflictError](err)
	switch {
	case ok && conflict.Outcome == Park && (r.order == BestEffort || !r.active.Overdue()):
		// It is parked, and a release wakes it. Past its deadline, asynq may have ended the run before, and no longer runs
		// its handler: then it gives up its position.
	case r.seq.returns(err):
		// The task comes back and keeps its position.
	default:
		r.leave(ctx) // it will not release the key for which it was woken
	}
	if !ok {
		return err
	}
	r.endedIn(ctx, conflict)
	r.keepReason(ctx, err)
	if conflict.Outcome == Complete {
		return nil
	}
	return err
}

func (r *run) endedIn(ctx context.Context, conflict *ConflictError) {
	r.observe(ctx,
		&Event{Kind: Ended, Key: conflict.Key, Holder: known(conflict.Holder), Waited: conflict.Waited, Err: conflict})
}

// undecided reports a run that ends with err, because a conflict has no outcome, and returns err.
func (r *run) undecided(ctx context.Context, held *locking.HeldError, err error) error {
	r.observe(ctx,
		&Event{Kind: Ended, Key: held.Key, Holder: known(held.Holder), Waited: r.waited(), Err: err})
	return err
}

// keepReason writes why a conflict archives or completes the task into the task's result, for [ParseConflict].
func (r *run) keepReason(ctx context.Context, outcome error) {
	conflict, ok := errors.AsType[*ConflictError](outcome)
	if !ok || conflict.Outcome != Archive && conflict.Outcome != Complete {
		return
	}
	if _, err := r.task.ResultWriter().Write(conflict.result()); err != nil {
		r.Logger.WarnContext(ctx, "the reason of a conflict could not be kept with its task", "task", r.id.String(),
			"error", err)
	}
}

// conflict returns the error of a run that ends in conflict. If delay is zero, RetryAfter is the rest of the lease.
func (r *run) conflict(held *locking.HeldError, outcome Outcome, delay time.Duration) *ConflictError {
	e := &ConflictError{
		Task: delayqueue.Task(r.id), Type: r.task.Type(), Key: held.Key, Holder: held.Holder,
		Outcome: outcome, RetryAfter: delay, Conflicts: max(r.refusals, 1), Waited: r.waited(),
	}
	if !held.Holder.Since.IsZero() {
		e.Held = max(time.Since(held.Holder.Since), 0)
	}
	if delay == 0 {
		e.RetryAfter = max(held.Holder.Remaining, 0)
	}
	return e
}

// leave ends the wait of a task whose run ends without an attempt to lock its keys: it forwards a wake that the task
// may have received, and removes the task from the sequence.
func (r *run) leave(ctx context.Context) {
	defer r.seq.quit(ctx) // once the task is no longer parked
	if r.Queue == nil || !parks(r.Strategy) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	r.active.Passed()
	if err := r.engine().ForwardWake(ctx, r.id, false); err != nil {
		r.Logger.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "task",
			r.id.String(), "error", err)
	}
}
