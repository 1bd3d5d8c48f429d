package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/internal/tasklock"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

// wakeTimeout bounds the wakes after a release.
const wakeTimeout = 5 * time.Second

// work runs the handler under the lease and gives the keys back when it returns.
func (r *run) work(ctx context.Context, lease *locking.Lease, next asynq.Handler) error {
	r.observe(ctx, Event{Kind: Acquired, Waited: r.waited()})
	r.began = time.Now()
	err := next.ProcessTask(locking.NewContext(lease.Context(ctx), lease), r.task)
	failed := err != nil || ctx.Err() != nil || lease.Err() != nil && !lease.Committed()
	if lost := r.giveBack(ctx, lease, r.ordering.stays(ctx, failed, err)); errors.Is(lost, locking.ErrLost) && !lease.Committed() {
		err = errors.Join(err, lost)
	}
	return err
}

// giveBack releases the keys after the handler. A task that stays keeps its place in line. It returns why the lease was
// lost, or nil.
func (r *run) giveBack(ctx context.Context, lease *locking.Lease, stays bool) error {
	lost := r.release(ctx, lease, !stays)
	if stays && lease.ShouldNotify() {
		r.ordering.wakeAgain(ctx) // asynq may have given this run up, and another one of the task waits for the key
	}
	var held time.Duration
	if !r.began.IsZero() {
		held = time.Since(r.began)
	}
	if lost != nil {
		r.observe(ctx, Event{Kind: Lost, Held: held, Err: lost})
	}
	r.observe(ctx, Event{Kind: Released, Held: held, Err: lost})
	return lost
}

// release releases the keys and wakes the next task of each that somebody waits for. A task that is leaving has ended,
// and its place in line is the next one's. It returns why the lease was lost, or nil.
func (r *run) release(ctx context.Context, lease *locking.Lease, leaving bool) error {
	lost := lease.Err()
	var left parking.Front
	if leaving {
		left = r.ordering.leave(ctx, lost != nil)
	}
	r.lease = nil
	if err := lease.Release(ctx); err != nil {
		switch loss, ok := errors.AsType[*locking.LostError](err); {
		case ok && loss.Reason != locking.LossTaken: // its time was over only after the handler had returned, or lost says so already
		case errors.Is(err, locking.ErrLost):
			lost = err
		default:
			r.warnOfKept(ctx, lease, err)
		}
	}
	if r.Queue != nil {
		r.ordering.wakeNext(ctx, lease, left, leaving)
	}
	return lost
}

// warnOfKept tells the log of keys that could not be released.
func (r *run) warnOfKept(ctx context.Context, lease *locking.Lease, err error) {
	r.Logger.WarnContext(ctx, "keys could not be released; they become free when their TTL ends",
		"task", r.id.String(), "keys", r.hashed(lease.Keys()), "error", tasklock.WithoutKeys(err))
}

// wakeWaiters wakes the next tasks of each key that was released and that somebody may wait for, as many as there are
// places for, all at once.
func (r *run) wakeWaiters(ctx context.Context, lease *locking.Lease) {
	held := r.noteHold()
	var wakes []parking.KeyWake
	for _, key := range r.keys {
		n := r.SlotBudget.standby.Released(key,
			standby.Release{Held: held, HandedOff: lease.HandedOff(), Notify: lease.ShouldNotify()},
			r.SlotBudget.spareForNext)
		if n > 0 {
			wakes = append(wakes, parking.KeyWake{Key: key, WakeOptions: parking.WakeOptions{Leaver: r.id, Most: n}})
		}
	}
	if len(wakes) > 0 {
		r.wakeAll(ctx, wakes, lease.HandedOff())
	}
}

// wake promotes the next tasks of a key, as many as the options say and at least one.
func (r *run) wake(ctx context.Context, key string, opts parking.WakeOptions) {
	r.wakeAll(ctx, []parking.KeyWake{{Key: key, WakeOptions: opts}}, false)
}

// wakeAll promotes the next tasks of several keys, and tries again for those for which it fails. Each key is free for
// the first of its tasks, unless it was handed on in this process or a task waits for it in its slot.
func (r *run) wakeAll(ctx context.Context, wakes []parking.KeyWake, handedOn bool) {
	_, _ = retry(ctx, r, notWoken, func(ctx context.Context) (none struct{}, failed error) {
		left := wakes[:0]
		for i, woken := range r.engine().WakeAll(ctx, wakes) {
			w := wakes[i]
			if woken.Err != nil {
				left, failed = append(left, w), woken.Err
				continue
			}
			awaited := r.SlotBudget.standby.Woke(w.Key, w.Most, woken.Tasks, woken.Left)
			for i, next := range woken.Tasks {
				cause := ByRelease
				if i > 0 || handedOn || awaited {
					cause = ByStandby
				}
				r.observe(ctx, Event{Kind: Woke, Key: w.Key, Cause: cause, Next: delayqueue.Task(next)})
			}
		}
		wakes = left
		return none, failed
	})
	for _, w := range wakes {
		r.SlotBudget.standby.NotWoken(w.Key, w.Most)
	}
}

// notWoken is what the log says of a wake that failed.
const notWoken = "the next task was not woken; its timer will bring it back"

// retry makes a call that is for the tasks that wait, and again while Redis refuses, as it does during a failover: else
// the task would stay in line itself, and the next one would wait for its timer. A worker that shuts down tries once.
// When it was in vain, the log says what that means.
func retry[T any](ctx context.Context, r *run, inVain string, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTimeout)
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond))
	var cause error
	reply, err := backoff.RetryWithData(func() (reply T, err error) {
		if reply, err = call(ctx); err != nil {
			cause = err
			if r.isStopping() {
				err = backoff.Permanent(err)
			}
		}
		return reply, err
	}, backoff.WithContext(wait, ctx))
	if err == nil {
		return reply, nil
	}
	r.Logger.WarnContext(ctx, "waking the next task failed", "result", inVain, "task", r.id.String(), "keys",
		r.hashed(r.keys), "error", cause)
	return reply, cause // and not that the time is up
}

// meanHold returns how long handlers of this middleware take on average; zero while unknown.
func (l *lock) meanHold() time.Duration { return time.Duration(l.held.Load()) }

// noteHold adds the time since the run's handler began to that average, and returns it; zero when none did. When two do
// so at the same moment one of them is lost, which does not matter.
func (r *run) noteHold() time.Duration {
	if r.began.IsZero() {
		return 0
	}
	d := time.Since(r.began)
	r.held.Store(int64(standby.Average(r.meanHold(), d)))
	return d
}

// ended tells of a run that ends without the lock, and returns the error for asynq.
func (r *run) ended(ctx context.Context, err error) error {
	limit, atLimit := errors.AsType[*limitError](err)
	if atLimit {
		r.ordering.quit(ctx)
		r.endedIn(ctx, limit.conflict)
		r.keepReason(ctx, limit.outcome)
		return limit.outcome
	}
	conflict, ok := errors.AsType[*ConflictError](err)
	switch {
	case ok && conflict.Outcome == Park:
	case r.ordering.returns(err):
		// It comes back, and keeps its position.
	default:
		r.leave(ctx) // it will not give back a key that it was woken for
	}
	if !ok {
		return err
	}
	r.endedIn(ctx, conflict)
	r.keepReason(ctx, err)
	return err
}

func (r *run) endedIn(ctx context.Context, conflict *ConflictError) {
	r.observe(ctx,
		Event{Kind: Ended, Key: conflict.Key, Holder: known(conflict.Holder), Waited: conflict.Waited, Err: conflict})
}

// keepReason writes why a conflict has a task archived as the task's result, for [ParseConflict].
func (r *run) keepReason(ctx context.Context, outcome error) {
	conflict, ok := errors.AsType[*ConflictError](outcome)
	if !ok || conflict.Outcome != Archive {
		return
	}
	if _, err := r.task.ResultWriter().Write(conflict.result()); err != nil {
		r.Logger.WarnContext(ctx, "the reason of a conflict could not be kept with its task", "task", r.id.String(),
			"error", err)
	}
}
