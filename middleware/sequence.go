package middleware

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// recovererDelay is the time until a task looks again for a task before it that only asynq's recoverer can bring back.
// The recoverer runs when a server starts, and then each minute.
const recovererDelay = 5 * time.Second

// errOneKey is what is wrong with a task of several keys whose handler keeps an order.
var errOneKey = errors.New("a task that runs in order must have exactly one key: " +
	"let the key function return one key, such as what the keys have in common")

// sequence is the place of a task that runs in the order in which the tasks of its key arrived (FIFO, StrictFIFO). It is nil
// without an order.
type sequence struct {
	*run
	at     time.Time // the position of the task
	before int       // how many tasks are before it
	outage outage    // of the Redis that has the sequence
	joined bool      // the task has joined the sequence in this run
}

// inOrder has a run keep the order of its middleware.
func (r *run) inOrder() *run {
	if r.order != BestEffort {
		r.seq = &sequence{run: r}
	}
	return r
}

// ahead returns how many tasks were before this one when it was last admitted or refused; 0 without a sequence.
func (r *sequence) ahead() int {
	if r == nil {
		return 0
	}
	return r.before
}

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

// becomes returns what an acknowledgement that releases the keys makes of the position of a task that stays or leaves, and how
// many tasks it wakes.
func (r *run) becomes(stays bool) (colocated.Place, func(key string) int) {
	switch {
	case r.seq == nil:
		return colocated.NoPlace, r.planWake
	case stays:
		return colocated.Stays, func(string) int { return 0 }
	}
	return colocated.Leaves, func(string) int { return 1 }
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

// giveUp releases a key that was locked only to check that it is free, and wakes the next task.
func (r *run) giveUp(ctx context.Context, lease *locking.Lease) {
	if r.seq == nil {
		r.giveUpKeys(ctx, lease)
		return
	}
	if err := lease.Release(ctx); err != nil {
		r.warnOfKept(ctx, lease, err)
		return
	}
	r.seq.wakeFirst(ctx)
}

// leaveNeedless removes a task from the sequence that its producer has put it in, although its handler keeps no order.
func (r *run) leaveNeedless(ctx context.Context) {
	for _, key := range r.keys {
		if line.EnqueuedFor(r.id, key, r.task.Headers()) {
			r.remove(ctx, r.id, key)
		}
	}
}

// remove removes a task from the sequence of a key, and returns the next tasks.
func (r *run) remove(ctx context.Context, t line.Task, key string) line.Front {
	left, _ := retry(ctx, r, "a task could not leave the sequence of its key; those behind it wait until it is gone",
		func(ctx context.Context) (line.Front, error) { return r.engine().Remove(ctx, t, key) })
	return left
}
