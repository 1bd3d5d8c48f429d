package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// process runs a task.
func (l *lock) process(ctx context.Context, task *asynq.Task, next asynq.Handler) error {
	r, err := l.begin(ctx, task)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			r.abandon(ctx)
		}
		r.active.End(ctx)
	}()
	err = r.process(ctx, next)
	returned = true
	return err
}

// begin returns a new run of the task that asynq has put into the context.
func (l *lock) begin(ctx context.Context, task *asynq.Task) (*run, error) {
	id, err := line.TaskOf(ctx)
	if err != nil {
		return nil, err
	}
	attempt, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	r := &run{lock: l, task: task, id: id, attempt: attempt, left: max(most-attempt, 0)}
	r.inOrder()
	if l.Queue != nil {
		if r.active, err = l.engine().Run(id); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// process runs the task and returns the error for asynq.
func (r *run) process(ctx context.Context, next asynq.Handler) error {
	if err := r.prepare(ctx); err != nil {
		r.leave(ctx)
		return err
	}
	running, end := r.cancellable(ctx)
	defer end(nil)
	defer r.superseding.handlerReturned()
	if r.withoutLock {
		next, err := r.begin(running, next)
		if err != nil {
			return r.ended(ctx, r.cancelled(ctx, running, nil, err))
		}
		r.began = time.Now()
		return r.cancelled(ctx, running, nil, next.ProcessTask(running, r.task))
	}
	lease, err := r.acquire(running)
	if err != nil {
		return r.ended(ctx, r.cancelled(ctx, running, nil, err))
	}
	r.lease = lease
	if next, err = r.begin(running, next); err != nil {
		r.lease = nil
		r.giveUp(context.WithoutCancel(ctx), lease)
		return r.ended(ctx, r.cancelled(ctx, running, nil, err))
	}
	r.warnOfMaxHold(ctx)
	return r.handle(ctx, running, lease, next)
}

// handle runs the handler under the lease and releases the keys when it returns. running is the context of the run: it ends when
// the task is cancelled.
func (r *run) handle(ctx, running context.Context, lease *locking.Lease, next asynq.Handler) error {
	r.observeAcquired(ctx)
	r.began = time.Now()
	r.list(lease, false)
	r.active.Took(r.keys, false)
	err := running.Err()
	if err == nil {
		err = next.ProcessTask(locking.NewContext(lease.Context(running), lease), r.task)
	}
	r.superseding.handlerReturned()
	err = r.cancelled(ctx, running, lease, err)
	if err == nil && ctx.Err() == nil {
		locks.Forgive(ctx, r.Stopping, lease)
	}
	failed := err != nil || ctx.Err() != nil || lease.Err() != nil && !lease.Committed()
	lost := r.giveBack(ctx, lease, r.seq.stays(ctx, failed, err))
	if _, cancelled := err.(*CancelledError); errors.Is(lost, locking.ErrLost) && !lease.Committed() && !cancelled { //nolint:errorlint // ours
		err = errors.Join(err, lost)
	}
	return err
}

// prepare finds the keys of the task and checks whether it may run with them.
func (r *run) prepare(ctx context.Context) (err error) {
	r.keys, err = keysOf(ctx, r.Key, r.task, r.limits)
	if items, ok := errors.AsType[*taskrun.ItemsError](err); ok {
		if err = r.useItems(items); err != nil {
			err = &KeyError{Type: r.task.Type(), Err: err}
		}
	}
	r.observeTimer(ctx)
	if err != nil {
		return err
	}
	if r.seq != nil && len(r.keys) != 1 {
		return &KeyError{Type: r.task.Type(), Err: errOneKey}
	}
	return nil
}

// warnOfMaxHold logs, once for each task type, that a task may run for longer than its lease can be held. A handler
// that uses all of that time loses its lease in every run, and the task never completes.
func (r *run) warnOfMaxHold(ctx context.Context) {
	maxHold := cmp.Or(r.opts.MaxHold, locking.DefaultMaxHold)
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) <= maxHold {
		return
	}
	if _, warned := r.warned.LoadOrStore(r.task.Type(), true); !warned {
		r.Logger.WarnContext(ctx,
			"tasks may run for longer than their lease can be held, and lose it then: raise MaxHold, or lower asynq.Timeout",
			"type", r.task.Type(), "max_hold", maxHold, "time_left", time.Until(deadline).Round(time.Second))
	}
}

// errBroken stands for the result of a run whose code has panicked or ended its goroutine. asynq makes the error that
// the task gets.
var errBroken = errors.New("middleware: the run did not return")

// abandon releases everything that a run has, because a user's code has panicked or has ended its goroutine
// (runtime.Goexit). It does not recover: asynq reports the panic with its stack, and retries or archives the task as
// after any panic of a handler.
func (r *run) abandon(ctx context.Context) {
	r.active.Withdraw() // asynq counts a failure, whatever the strategy had decided
	r.stopWaiting()
	if held, taken := r.active.Claim(); held != nil || taken != nil { // asynq may not acknowledge the run before its deadline
		rejecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
		r.active.Reject(rejecting, held, taken)
		cancel()
	}
	switch {
	case r.lease != nil:
		_ = r.giveBackNow(ctx, r.lease, r.seq.stays(ctx, true, nil))
	case r.seq.returns(errBroken):
		// The task comes back and keeps its position.
	default:
		r.leave(ctx)
	}
}
