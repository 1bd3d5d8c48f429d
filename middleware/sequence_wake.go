package middleware

import (
	"context"
	"errors"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
)

// watch has the sequence looked after whose first task has failed and keeps its position: no task releases the key when an
// operator deletes or archives that one.
func (r *sequence) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	if err := r.engine().Watch(ctx, r.keys[0]); err != nil {
		r.Logger.WarnContext(ctx, "the head of a sequence is not watched; if it is deleted, timers bring back the tasks behind it",
			"error", logsafe.Error(err))
	}
}

// wakeFirst wakes the first task of the sequence if it is parked. If there is no sequence, it wakes the next waiter, which
// its producer has parked.
func (r *sequence) wakeFirst(ctx context.Context) line.Woken {
	woken, _ := retry(ctx, r.run, notWoken, func(ctx context.Context) (line.Woken, error) {
		return r.engine().WakeNext(ctx, r.keys[0], line.WakeOptions{})
	})
	r.observeWoken(ctx, r.keys[0], woken.Tasks)
	return woken
}

// wakeTask wakes a task of the run's key for a cause, if it is parked.
func (r *sequence) wakeTask(ctx context.Context, t line.Task, cause WakeCause) {
	woken, _ := retry(ctx, r.run, notWoken, func(ctx context.Context) (line.Woken, error) {
		return r.engine().WakeTask(ctx, r.keys[0], t)
	})
	for _, t := range woken.Tasks {
		r.observe(ctx, &Event{Kind: Woke, Key: r.keys[0], Cause: cause, Next: delayqueue.Task(t)})
	}
}

// bringBack makes the first task run again after its worker has died, so that the tasks behind it need not wait until
// asynq does so. The old run must have ended, and only the lock shows that: if the lock is held, bringBack returns the
// holder.
func (r *sequence) bringBack(
	ctx context.Context, t line.Task, begun, locked bool,
) (back bool, held *locking.HeldError) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	var err error
	if !locked {
		var lease *locking.Lease
		if lease, err = r.attemptOnce(ctx); err == nil {
			defer r.unlockAfterLook(ctx, lease)
		} else if held, ok := errors.AsType[*locking.HeldError](err); ok {
			return false, held
		}
	}
	if err == nil {
		back, err = r.engine().BringBack(ctx, t, begun)
	}
	if err != nil {
		r.Logger.WarnContext(ctx,
			"a task whose worker has died could not be brought back; asynq does so in a minute or two",
			"task", t.String(), "error", logsafe.Error(err))
	}
	return back, nil
}

// unlockAfterLook releases a key that was locked only to check that it is free. A task that was refused in the meantime
// is parked, and only this run can wake it.
func (r *sequence) unlockAfterLook(ctx context.Context, lease *locking.Lease) {
	_ = lease.Release(ctx)
	if lease.ShouldNotify() {
		r.wakeFirst(ctx)
	}
}

// remove removes a task from the sequence of a key, and returns the next tasks.
func (r *run) remove(ctx context.Context, t line.Task, key string) line.Front {
	left, _ := retry(ctx, r, "a task could not leave the sequence of its key; those behind it wait until it is gone",
		func(ctx context.Context) (line.Front, error) { return r.engine().Remove(ctx, t, key) })
	return left
}
