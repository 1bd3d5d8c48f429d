package middleware

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// attemptMost is the maximum duration of one attempt, whatever the client's own limits are: a server that does not
// answer must not block a slot.
const attemptMost = 5 * time.Second

// attemptTimeout returns how long one attempt may take. It leaves enough time to postpone the task before its deadline.
func attemptTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return attemptMost
	}
	left := time.Until(deadline)
	return min(attemptMost, max(left-outageMargin, left/2))
}

// try makes one attempt, and repeats it while the lock servers cannot be reached.
func (r *run) try(ctx context.Context) (*locking.Lease, *locking.HeldError, error) {
	for {
		lease, err := r.attemptOnce(ctx)
		if err == nil {
			r.outage = outage{}
			return lease, nil, nil
		}
		if held, ok := errors.AsType[*locking.HeldError](err); ok {
			r.outage = outage{}
			return nil, held, nil
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if !mayPass(err) {
			if !errors.Is(err, locking.ErrReentrant) {
				r.observe(ctx, &Event{Kind: Unavailable, Err: err})
			}
			return nil, nil, err
		}
		if err := r.awaitRedis(ctx, &r.outage, err); err != nil {
			return nil, nil, err
		}
	}
}

// mayPass reports whether an attempt that failed with err is worth repeating.
func mayPass(err error) bool {
	// ErrLost: the reply came so late that the lease had expired.
	return errors.Is(err, locking.ErrUnavailable) || errors.Is(err, locking.ErrLost) ||
		errors.Is(err, context.DeadlineExceeded)
}

// attemptOnce makes one attempt.
func (r *run) attemptOnce(ctx context.Context) (*locking.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	began := r.clock()
	lease, err := r.Locker.Acquire(ctx, r.keys, r.options())
	r.lease, r.took = lease, since(began)
	if err == nil && r.learns() {
		r.active.Learn(r.task.Type(), r.keys, cmp.Or(r.opts.TTL, locking.DefaultTTL), r.lock)
	}
	return lease, err
}

// claim returns a lease of the keys if they were taken together with the task, and nil if they must be locked.
func (r *run) claim(ctx context.Context) *locking.Lease {
	held, taken := r.active.Claim()
	mistaken, lease := false, (*locking.Lease)(nil)
	switch a, ok := held.(adopted); {
	case ok && a.by != r.lock: // another middleware of the type
	case ok:
		lease, mistaken = a.Lease, !slices.Equal(sortedKeys(r.keys), a.Keys())
		if !a.refused.IsZero() {
			r.firstAt, r.refusals, r.freed = a.refused, 1, a.handed
		}
	case taken == nil:
		return nil
	case !slices.Equal(sortedKeys(r.keys), taken.Keys) || !r.colocated || r.order.recorded() != taken.Order:
		mistaken = true
	default:
		lease, _ = locks.Adopt(ctx, taken, r.options())
	}
	if lease != nil && !mistaken && lease.Err() == nil {
		r.came = true
		return lease
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	r.active.Reject(ctx, held, taken)
	if mistaken {
		r.active.Mistaken(ctx, r.task.Type(), r.keys)
	}
	return nil
}

// adopted is a lease that a task has got before its run.
type adopted struct {
	*locking.Lease
	by              *lock     // that has adopted it
	apart           bool      // no script of the task's queue reaches it
	refused, handed time.Time // when the task was refused its keys, and when they were handed off to it; zero if it was not
}

// Release ends the lease, and returns its release.
func (a adopted) Release(freed func(keys []string)) *colocated.Release {
	if a.by.colocated && !a.apart {
		return locks.Defer(a.Lease, func(o colocated.Outcome, _ error) {
			if o.Notify {
				freed(a.Keys())
			}
		})
	}
	return colocated.NewRelease(nil, "", nil, func(ctx context.Context, _ bool) (o colocated.Outcome, err error) {
		if err = a.Lease.Release(ctx); a.ShouldNotify() && !a.HandedOff() {
			freed(a.Keys())
		}
		return o, err
	})
}

// Adopt makes a lease of the locks that a task was taken with.
func (l *lock) Adopt(t line.Task, kind string, taken *colocated.Taken) colocated.Held {
	if !l.colocated || l.order.recorded() != taken.Order {
		return nil
	}
	if lease, err := locks.Adopt(atOnce, taken, l.optionsOf(kind, t)); err == nil {
		return adopted{Lease: lease, by: l}
	}
	return nil
}

// atOnce has ended: a lease that would have to be renewed first is left to the run.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// sortedKeys returns keys in the order of a lease's.
func sortedKeys(keys []string) []string {
	if len(keys) < 2 {
		return keys
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// options returns the options of an attempt.
func (r *run) options() locking.Options { return r.optionsOf(r.task.Type(), r.id) }

// optionsOf returns the options of an attempt for a task.
func (l *lock) optionsOf(kind string, t line.Task) locking.Options {
	opts := l.opts
	opts.Label = l.Label + "/" + kind + "/" + t.ID
	if l.notifyFor > 0 {
		opts.Notify = l.notifyFor
	}
	return opts
}
