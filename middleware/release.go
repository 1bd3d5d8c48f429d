package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
)

// giveBack releases the keys after the handler. A task that stays keeps its position in the sequence. giveBack returns
// why the lease was lost, or nil. The keys are released with asynq's acknowledgement if they are on the Redis of the tasks,
// and the same script wakes the next tasks; if it turns out then that the lease was lost, the task does not count as done.
func (r *run) giveBack(ctx context.Context, lease *locking.Lease, stays bool) error {
	r.unlist()
	held, after := r.heldFor(), context.WithoutCancel(ctx)
	if r.colocated && ctx.Err() == nil && r.active.Release(line.ReleaseOptions{
		Keys: lease.Keys(), Committed: lease.Committed(),
		Place: r.becomes(stays), Followed: r.followed(held),
		Defer: func(done func(colocated.Outcome, error)) *colocated.Release { return locks.Defer(lease, done) },
		Done: func(woken map[string]line.Woken, o colocated.Outcome, lost error) {
			r.woken = woken
			if loss, ok := errors.AsType[*locking.LostError](lossOf(lost)); ok && !o.Foreign {
				r.passed = loss.Keys
			}
			var left line.Front
			if !o.Scripted && !stays {
				left = r.seq.leave(after, lost != nil)
			}
			r.wakeNext(after, lease, left, !stays, lost)
			r.observeEnd(after, held, lossOf(lost))
		},
	}) {
		r.lease = nil
		return nil
	}
	return r.giveBackNow(ctx, lease, stays)
}

// followed reports whether the next task of the key is to have another one waiting for it in memory, by how long the handler took.
// That of several keys is not: those that wait for one of them rarely want the same others.
func (r *run) followed(held time.Duration) bool {
	return r.came && len(r.keys) == 1 && r.mayFollow(held)
}

// giveBackNow does what giveBack does, without waiting for an acknowledgement.
func (r *run) giveBackNow(ctx context.Context, lease *locking.Lease, stays bool) error {
	r.unlist()
	r.lease = nil
	held := r.heldFor()
	lost := r.release(ctx, lease, !stays)
	if stays && lease.ShouldNotify() {
		r.seq.wakeFirst(ctx) // asynq may have abandoned this run, and another run of the task waits for the key
	}
	r.observeEnd(ctx, held, lost)
	return lost
}

// heldFor returns how long the handler has run, zero if it has not begun.
func (r *run) heldFor() time.Duration {
	if r.began.IsZero() {
		return 0
	}
	return time.Since(r.began)
}

// observeEnd reports that the keys were released. lost says why the lease was lost, if it was.
func (r *run) observeEnd(ctx context.Context, held time.Duration, lost error) {
	e := Event{Kind: Lost, Held: held, Err: lost}
	if lost != nil {
		r.observe(ctx, &e)
	}
	e.Kind = Released
	r.observe(ctx, &e)
}

// release releases the keys and, for each key that has waiters, wakes the next task. A task that is leaving has ended,
// and gives up its position in the sequence. release returns why the lease was lost, or nil.
func (r *run) release(ctx context.Context, lease *locking.Lease, leaving bool) error {
	lost := lease.Err()
	if errors.Is(lost, locking.ErrReleased) { // handed off
		lost = nil
	}
	var left line.Front
	if leaving {
		left = r.seq.leave(ctx, lost != nil)
	}
	err := lease.Release(ctx)
	if loss := lossOf(err); loss != nil {
		lost = loss
	}
	if loss, ok := errors.AsType[*locking.LostError](lost); ok && loss.Reason == locking.LossDeposed {
		r.passed = loss.Keys // whoever has deposed it wakes the next task: with two wakes, the second task could come first
	}
	r.wakeNext(ctx, lease, left, leaving, err)
	return lost
}

// lossOf returns the error of a release if it says that the lease was lost, and nil otherwise. A lease that has merely
// expired after the handler returned is not lost.
func lossOf(released error) error {
	if loss, ok := errors.AsType[*locking.LostError](released); ok && loss.Reason != locking.LossTaken && loss.Reason != locking.LossDeposed ||
		!errors.Is(released, locking.ErrLost) {
		return nil
	}
	return released
}

// wakeNext wakes the next tasks after a release with the given error.
func (r *run) wakeNext(ctx context.Context, lease *locking.Lease, left line.Front, leaving bool, released error) {
	if released != nil && !errors.Is(released, locking.ErrLost) {
		r.warnOfKept(ctx, lease, released)
	}
	switch {
	case r.Queue == nil:
	case r.seq != nil:
		r.seq.wakeNext(ctx, lease, left, leaving)
	default:
		r.wakeWaiters(ctx, lease)
		r.leaveNeedless(ctx)
	}
}

// warnOfKept logs that keys could not be released.
func (r *run) warnOfKept(ctx context.Context, lease *locking.Lease, err error) {
	r.Logger.WarnContext(ctx, "keys could not be released; they become free when their TTL ends",
		"task", r.id.String(), "keys", logsafe.Keys(lease.Keys()), "error", logsafe.Error(err))
}

// becomes returns what the end of the run makes of the position of a task that stays or leaves.
func (r *run) becomes(stays bool) colocated.Place {
	switch {
	case r.seq == nil:
		return colocated.NoPlace
	case stays:
		return colocated.Stays
	}
	return colocated.Leaves
}

// giveUp releases a key that was locked only to check that it is free, and wakes the next task.
func (r *run) giveUp(ctx context.Context, lease *locking.Lease) {
	if r.seq == nil {
		r.giveUpKeys(ctx, lease)
		return
	}
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locking.ErrLost) {
		r.warnOfKept(ctx, lease, err)
		return
	}
	r.seq.wakeFirst(ctx)
}

// giveUpKeys releases keys that the task has not used, and wakes tasks that were refused them in the meantime.
func (r *run) giveUpKeys(ctx context.Context, leases ...*locking.Lease) {
	errs := make([]error, len(leases))
	var releases sync.WaitGroup
	for i, lease := range leases {
		releases.Go(func() { errs[i] = lease.Release(ctx) })
	}
	releases.Wait()
	for i, lease := range leases {
		if errs[i] != nil && !errors.Is(errs[i], locking.ErrLost) {
			r.warnOfKept(ctx, lease, errs[i])
		}
		if lease.ShouldNotify() && !lease.HandedOff() {
			var wakes []line.KeyWake
			for _, key := range lease.Keys() {
				wakes = append(wakes, line.KeyWake{Key: key})
			}
			r.wakeAll(ctx, wakes)
		}
	}
}
