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
	// collectAfter is how often a task of several keys must have been refused before it collects them.
	collectAfter = 3
	// leastCollect and mostCollect bound how long it may take.
	leastCollect = 3 * time.Second
	mostCollect  = time.Minute
)

// collectTime returns how long a task may keep keys of its own while it waits for the others: enough for two holders of
// each key, and no more than leaves its handler most of the time before the deadline. hold is how long a key is held on
// average, left the time before the deadline. It is zero or less when the task should not even begin.
func collectTime(keys int, hold, left time.Duration) time.Duration {
	most := min(max(2*time.Duration(keys)*hold, leastCollect), mostCollect)
	return min(most, left/4, left-2*hold)
}

// starves reports whether the task should collect its keys: it has several, was refused often, and no other task of
// this server collects at the moment. Then it must call collect.
func (r *run) starves() bool {
	if len(r.keys) < 2 || r.collected || r.Queue == nil || r.isStopping() {
		return false
	}
	return r.active.Met(r.attempt).Count+r.refusals >= collectAfter && r.SlotBudget.collecting.CompareAndSwap(false,
		true)
}

// collect takes the keys one after another, and keeps those that it has while it waits in its slot for the next. Taken
// all at once or not at all, many busy keys would hardly ever be free together, and others would pass the task forever.
// All tasks collect in the order of the keys, so none of them waits in a circle; one of a server does so at a time, so
// the keys that it keeps idle are few. When time is up it gives back what it has and returns who holds the key that it
// lacks.
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
	return nil, held, nil // whatever else is wrong, the next attempt meets it too
}

// giveUpKey gives one key back that the task has not used, and wakes those that were refused meanwhile.
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

// untilStopping returns a context that ends at a time, and when the server begins to shut down.
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
