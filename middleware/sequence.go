package middleware

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// recovererDelay is the time until a task looks again for a task before it that only asynq's recoverer can bring back.
// The recoverer runs when a server starts, and then each minute.
const recovererDelay = 5 * time.Second

// errOneKey is what is wrong with a task of several keys whose handler keeps an order.
var errOneKey = errors.New("a task that runs in order must have exactly one key: " +
	"let the key function return one key, such as what the keys have in common")

// admit joins the sequence of the key and returns its first task as the holder of the key, or nil if this task is the
// first, and may try to lock it.
func (r *sequence) admit(ctx context.Context) (*locking.HeldError, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // it may always try
	}
	for {
		pos, err := r.join(ctx)
		if err == nil {
			if r.order == StrictFIFO && holdsUp(pos, r.maxAge) {
				left := r.remove(ctx, pos.First, r.keys[0])
				if len(left.Next) > 0 {
					r.wakeTask(ctx, left.Next[0], ByRepair) // it may be another task
				}
				if !slices.Contains(left.Next, pos.First) {
					continue
				}
			}
			r.outage, r.at, r.before, r.joined = outage{}, pos.At, pos.Ahead, true
			if pos.FirstFailed {
				r.watch(ctx)
			}
			if pos.FirstLost {
				back, held := r.bringBack(ctx, pos.First, pos.FirstBegun, false)
				if back {
					continue
				}
				if held != nil {
					return held, nil
				}
			}
			return notYet(r.keys[0], pos, time.Now()), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.awaitRedis(ctx, &r.outage, err); err != nil {
			return nil, err
		}
	}
}

// holdsUp reports whether the first task of a sequence has failed and may no longer hold up the others, because of
// their limit on age.
func holdsUp(t line.Position, maxAge time.Duration) bool {
	return maxAge > 0 && t.Ahead > 0 && t.FirstFailed && time.Since(t.FirstAt) > maxAge/2
}

// join adds the task to the sequence, at its former position if it had one.
func (r *sequence) join(ctx context.Context) (line.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	return r.engine().Join(ctx, r.id, r.keys[0],
		line.JoinOptions{At: r.at, Strict: r.order == StrictFIFO, Begins: !r.joined, Works: true})
}

// notYet returns the refusal of a task that is not the first of its sequence, and nil for the first.
func notYet(key string, t line.Position, now time.Time) *locking.HeldError {
	if t.Ahead == 0 {
		return nil
	}
	h := locking.Holder{
		Label:     "the first task of the sequence, " + t.First.String() + " (" + t.FirstState + ")",
		Remaining: locking.DefaultTTL,
	}
	switch {
	case !t.FirstAgain.IsZero():
		h.Remaining = max(t.FirstAgain.Sub(now), 0)
	case t.FirstLost: // it could not be brought back just now
		h.Remaining = recovererDelay
	case t.FirstLease.IsZero():
	case now.Before(t.FirstLease.Add(line.LeftAfter)): // until then its run may still be going on
		h.Remaining = max(t.FirstLease.Add(line.LostAfter).Sub(now), 0)
	default:
		h.Remaining = recovererDelay
	}
	return &locking.HeldError{Key: key, Holder: h}
}

// stays reports whether a task keeps its position after its handler has returned err: it will run again, and no other task
// may overtake it.
func (r *sequence) stays(ctx context.Context, failed bool, err error) bool {
	if r == nil || !failed || r.active.Overdue() {
		return false
	}
	if errors.Is(ctx.Err(), context.Canceled) && (r.active.PutBack() || r.active == nil && r.isStopping()) {
		return true // also on its last attempt, and whatever the handler returned: asynq has ignored it
	}
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) || r.lastAttempt() {
		return false
	}
	return r.order == StrictFIFO && (r.maxAge == 0 || time.Since(r.at) < r.maxAge/2)
}

// returns reports whether a task keeps its position after its run has ended with err before it had its keys.
func (r *sequence) returns(err error) bool {
	return r != nil && r.comesBack(err) && !r.active.Overdue()
}

// leave gives up the position of a task that has ended. It is called before the keys are released, so that the next holder
// finds that it is the first.
func (r *sequence) leave(ctx context.Context, lost bool) line.Front {
	if r == nil {
		return line.Front{}
	}
	left := r.remove(ctx, r.id, r.keys[0])
	if left.Lost && !lost {
		_, _ = r.bringBack(context.WithoutCancel(ctx), left.Next[0], left.Begun, true)
	}
	return left
}

// park adds what the order requires to the options of parking; limited says that a limit on waiters ends the wait.
func (r *sequence) park(opts *line.ParkOptions, limited bool) {
	if r == nil {
		return
	}
	opts.InOrder, opts.Ahead = true, max(r.before-1, 0) // the first of the sequence waits for no other task
	if !limited {
		opts.MaxWaiters, opts.MaxTotal = 0, 0 // it has a position in the sequence, and must be found there
	}
}

// looksAgain reports whether a task that has just been parked may check again whether its key is free.
func (r *sequence) looksAgain(ctx context.Context, key string, t line.Task) bool {
	if r == nil {
		return true
	}
	pos, err := r.engine().Join(ctx, t, key, line.JoinOptions{At: r.at, Strict: r.order == StrictFIFO})
	return err == nil && pos.Ahead == 0
}

// leaveNeedless removes a task from the sequence that its producer has put it in, although its handler keeps no order.
func (r *run) leaveNeedless(ctx context.Context) {
	for _, key := range r.keys {
		if r.active.InSequence(key) {
			r.remove(ctx, r.id, key)
		}
	}
}

// tryInOrder makes one attempt if the task is the next one in the order of its key, unless it has come with its locks.
func (r *run) tryInOrder(ctx context.Context) (*locking.Lease, *locking.HeldError, error) {
	if lease := r.claim(ctx); lease != nil {
		r.lease = lease
		return lease, nil, nil
	}
	if r.colocated && r.active.Woken() {
		locks.Supersede(r.Locker, r.keys)
	}
	if held, err := r.seq.admit(ctx); held != nil || err != nil {
		return nil, held, err
	}
	return r.try(ctx)
}

// wakeNext wakes the next tasks after a release. left is what leave has returned; leaving is false for a task that stays.
func (r *sequence) wakeNext(ctx context.Context, lease *locking.Lease, left line.Front, leaving bool) {
	if !leaving {
		r.watch(ctx) // others may have been parked behind it
		return
	}
	r.noteHold()
	if w := r.woken[r.keys[0]]; len(w.Tasks) > 0 {
		r.observeWoken(ctx, r.keys[0], w.Tasks)
		return
	}
	switch {
	case left.Parked == 0 && !lease.ShouldNotify() || lease.HandedOff():
	case len(left.Next) == 0:
		// A task may have arrived after this one has left, and have been refused by the lock that it still had. If the
		// acknowledgement has released the key, nobody has looked yet whether the worker of the next one is alive.
		if w := r.wakeFirst(ctx); w.Lost {
			_, _ = r.bringBack(ctx, w.Head, w.Begun, false)
		}
	default:
		r.wakeTask(ctx, left.Next[0], ByRelease)
	}
}

// quit gives up the position of a task that ends without its keys, and wakes the next task.
func (r *sequence) quit(ctx context.Context) {
	if r == nil || len(r.keys) != 1 {
		return
	}
	left := r.remove(ctx, r.id, r.keys[0])
	if left.Parked > 0 && len(left.Next) > 0 {
		r.wakeTask(ctx, left.Next[0], ByRelease)
	}
}
