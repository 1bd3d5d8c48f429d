package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// collectAfter is the number of refusals after which a task with several keys collects them instead of being parked.
	collectAfter = 2
	// leastCollect and mostCollect limit how long collecting may take.
	leastCollect = 3 * time.Second
	mostCollect  = time.Minute
)

// collectTime returns how long a task may keep some of its keys while it waits for the others: enough for two holders
// of each key, but not so long that the handler lacks time before the deadline. hold is how long a key is held on
// average, and left is the time before the deadline. If the result is zero or less, the task must not begin.
func collectTime(keys int, hold, left time.Duration) time.Duration {
	most := min(max(2*time.Duration(keys)*hold, leastCollect), mostCollect)
	return min(most, left/4, left-2*hold)
}

// starves reports whether the task must collect its keys: it has several, it would be on standby or was refused often,
// and no other task of this server is collecting. The caller must then call collect.
func (r *run) starves(d Decision) bool {
	if len(r.keys) < 2 || r.collected || r.Queue == nil || r.isStopping() {
		return false
	}
	often := r.active.Met(r.attempt).Count+r.refusals >= collectAfter
	return (d.Standby || d.Outcome == Park && often) && r.SlotBudget.collecting.CompareAndSwap(false, true)
}

// collect locks the keys one after another, and keeps those that it has while it waits in its slot for the next. If
// they were locked all at once or not at all, many busy keys would hardly ever be free together, and other tasks would
// always overtake this one. All tasks collect keys in the same order, so they cannot wait for each other in a circle.
// Only one task of a server collects at a time, so few keys are idle. When its time is up, collect releases what it has
// and returns the holder of the key that it lacks.
func (r *run) collect(ctx context.Context, held *locking.HeldError) (*locking.Lease, *locking.HeldError, error) {
	r.collected = true
	defer r.SlotBudget.collecting.Store(false)
	left := mostCollect * 4
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	hold := max(r.SlotBudget.standby.State(held.Key).Hold, r.meanHold())
	waiting, cancel := r.untilStopping(ctx, time.Now().Add(collectTime(len(r.keys), hold, left)))
	defer cancel()
	leases, err := locking.Collect(waiting, r.Locker, r.keys, r.options())
	if err == nil {
		var lease *locking.Lease
		if lease, err = locking.Join(ctx, leases, r.opts); err == nil {
			return lease, nil, nil
		}
	}
	for _, lease := range leases {
		r.giveUpKey(ctx, lease)
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if other, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, other, nil
	}
	return nil, held, nil // any other error will recur at the next attempt
}

// giveUpKey releases one key that the task has not used, and wakes tasks that were refused it in the meantime.
func (r *run) giveUpKey(ctx context.Context, lease *locking.Lease) {
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locking.ErrLost) {
		r.warnOfKept(ctx, lease, err)
	}
	key := lease.Keys()[0]
	released := standby.Release{HandedOff: lease.HandedOff(), Notify: lease.ShouldNotify()}
	if n := r.SlotBudget.standby.Released(key, released, r.SlotBudget.spareForNext); n > 0 {
		r.wake(ctx, key, parking.WakeOptions{Most: n})
	}
}

// untilStopping returns a context that ends at the given time, or when the server begins to shut down.
func (r *run) untilStopping(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	waiting, cancel := context.WithDeadline(ctx, end)
	if r.Stopping != nil {
		go func() {
			select {
			case <-r.Stopping:
				cancel()
			case <-waiting.Done():
			}
		}()
	}
	return waiting, cancel
}
