package middleware

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// recovererDelay is how long a task waits behind one that is left to asynq's recoverer before it looks again: the
// recoverer looks when a server starts, and then each minute.
const recovererDelay = 5 * time.Second

// errOneKey is what is wrong with a task of several keys that is to run in order.
var errOneKey = errors.New("tasks that run in order have one key: let the key function return one, or lock what the keys have in common")

// sequence is the ordering of tasks that run in the order in which they arrived: FIFO and StrictFIFO.
type sequence struct {
	*run
	at     time.Time    // the task's position
	before int          // tasks that stand before it
	first  parking.Task // of them
	outage outage       // of what tells the position
	joined bool         // the sequence knows that the task runs
}

func (r *sequence) accepts(keys []string) error {
	if len(keys) != 1 {
		return errOneKey
	}
	return nil
}

func (r *sequence) ahead() int { return r.before }

func (r *sequence) admit(ctx context.Context) (*locking.HeldError, error) { return r.turn(ctx, false) }

// turn joins the sequence of the key and returns the task that stands before this one, or nil when it is this one's
// turn. locked says that the run has the key.
func (r *sequence) turn(ctx context.Context, locked bool) (*locking.HeldError, error) {
	for {
		turn, err := r.join(ctx)
		if err == nil {
			if r.order == StrictFIFO && holdsUp(turn, r.maxAge) {
				left := r.remove(ctx, turn.First, r.keys[0])
				r.wakeTasks(ctx, left.Next[:min(len(left.Next), 1)], ByRepair) // it may not be this one
				if !slices.Contains(left.Next, turn.First) {
					continue
				}
			}
			r.outage, r.at, r.before, r.first, r.joined = outage{}, turn.At, turn.Ahead, turn.First, true
			if !turn.FirstAgain.IsZero() || !turn.FirstLease.IsZero() && time.Now().After(turn.FirstLease) {
				r.noStandby = true // the first is parked, has failed, or its worker has died: it will not run in a moment
			}
			if turn.FirstLost {
				back, held := r.bringBack(ctx, turn.First, turn.FirstBegun, locked)
				if back {
					continue
				}
				if held != nil {
					return held, nil
				}
			}
			return notYet(r.keys[0], turn, time.Now()), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.sitOut(ctx, &r.outage, err); err != nil {
			return nil, err
		}
	}
}

// holdsUp reports whether the first task of a sequence has failed, and may hold up the others no more because of their
// limit on age.
func holdsUp(t parking.Position, maxAge time.Duration) bool {
	return maxAge > 0 && t.Ahead > 0 && t.FirstState == "retry" && !t.FirstParked && time.Since(t.FirstAt) > maxAge/2
}

// join enters the task into the sequence, at the position that it had before if there is one.
func (r *sequence) join(ctx context.Context) (parking.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	return r.engine().Join(ctx, r.id, r.keys[0],
		parking.JoinOptions{At: r.at, Keep: 2 * r.maxAge, Begins: !r.joined, Works: true})
}

// notYet returns the refusal of a task that is not the first of its sequence; nil for the first.
func notYet(key string, t parking.Position, now time.Time) *locking.HeldError {
	if t.Ahead == 0 {
		return nil
	}
	h := locking.Holder{Label: "the task first in line, " + t.First.String() + " (" + t.FirstState + ")", Remaining: locking.DefaultTTL}
	switch {
	case !t.FirstAgain.IsZero():
		h.Remaining = max(t.FirstAgain.Sub(now), 0)
	case t.FirstLease.IsZero():
	case now.Before(t.FirstLease.Add(parking.LeftAfter)): // by then it has ended, or its worker has died
		h.Remaining = max(t.FirstLease.Add(parking.LostAfter).Sub(now), 0)
	default:
		h.Remaining = recovererDelay
	}
	return &locking.HeldError{Key: key, Holder: h}
}

func (r *sequence) confirm(ctx context.Context, lease *locking.Lease) (*locking.Lease, *locking.HeldError, error) {
	held, err := r.turn(ctx, true)
	if held == nil && err == nil {
		return lease, nil, nil
	}
	r.noStandby = true
	_ = r.release(ctx, lease, false)
	switch {
	case !lease.ShouldNotify():
	case held != nil: // the first may have come for the lock just now
		r.wakeTasks(ctx, []parking.Task{r.first}, ByRelease)
	default:
		r.wakeFirst(ctx)
	}
	return nil, held, err
}

func (r *sequence) stays(ctx context.Context, failed bool, err error) bool {
	if !failed {
		return false
	}
	if errors.Is(ctx.Err(), context.Canceled) && (r.active.PutBack() || r.active == nil && r.isStopping()) {
		return true // also on its last attempt, and whatever the handler said: asynq has not listened
	}
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) || r.lastAttempt() {
		return false
	}
	return r.order == StrictFIFO && (r.maxAge == 0 || time.Since(r.at) < r.maxAge/2)
}

func (r *sequence) returns(err error) bool { return r.comesBack(err) }

func (r *sequence) leave(ctx context.Context, lost bool) parking.Front {
	left := r.remove(ctx, r.id, r.keys[0])
	if left.Lost && !lost {
		_, _ = r.bringBack(context.WithoutCancel(ctx), left.Next[0], left.Begun, true)
	}
	return left
}

func (r *sequence) park(opts *parking.ParkOptions, limited bool) {
	opts.InOrder, opts.Ahead = true, max(r.before-1, 0) // the first of the sequence does not wait for another
	if !limited {
		opts.MaxWaiters, opts.MaxTotal = 0, 0 // it has its position in the sequence, and must be found there
	}
}

func (r *sequence) looksAgain(ctx context.Context, key string, t parking.Task) bool {
	turn, err := r.engine().Join(ctx, t, key, parking.JoinOptions{At: r.at, Keep: 2 * r.maxAge})
	return err == nil && turn.Ahead == 0
}

func (r *sequence) giveUp(ctx context.Context, lease *locking.Lease) {
	if err := lease.Release(ctx); err != nil {
		r.warnOfKept(ctx, lease, err)
		return
	}
	r.wakeFirst(ctx)
}
