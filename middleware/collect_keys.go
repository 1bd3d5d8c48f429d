package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// collectAfter is the number of refusals after which a task with several keys collects them.
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

// starves reports whether the task must collect its keys: it has several, was refused often, and no other task of this
// server is collecting. The caller must then call collect.
func (r *run) starves() bool {
	if len(r.keys) < 2 || r.collected || r.Queue == nil || r.isStopping() {
		return false
	}
	return r.active.Met(r.attempt).Count+r.refusals >= collectAfter && r.SlotBudget.beginCollecting()
}

// collect locks the keys one after another: see [run.lockEach]. When its time is up, it returns the holder of the key
// that it lacks.
func (r *run) collect(ctx context.Context, held *locking.HeldError) (*locking.Lease, *locking.HeldError, error) {
	r.collected = true
	defer r.SlotBudget.collecting.Store(false)
	left := cmp.Or(r.opts.MaxHold, locking.DefaultMaxHold)
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	hold := max(r.SlotBudget.standby.State(held.Key).Hold, r.meanHold())
	waiting, cancel := r.untilStopping(ctx, time.Now().Add(collectTime(len(r.keys), hold, left)))
	defer cancel()
	lease, err := r.lockEach(ctx, waiting)
	if lease != nil {
		r.took, r.freed = 0, time.Time{}
		return lease, nil, nil
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if other, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, other, nil
	}
	return nil, held, nil // any other error will recur at the next attempt
}

// lockEach locks the keys one after another until waiting ends, and keeps those that it has while it waits in its slot
// for the next. If they were locked all at once or not at all, many busy keys would hardly ever be free together, and
// other tasks would always overtake this one. All tasks lock their keys in the same order, so they cannot wait for each
// other in a circle. Only one task of a server does this at a time, so few keys are idle. In the end it has all keys, or
// releases those that it has.
func (r *run) lockEach(ctx, waiting context.Context) (*locking.Lease, error) {
	leases, err := locking.Collect(waiting, r.Locker, r.keys, r.options())
	if err == nil {
		var lease *locking.Lease
		if lease, err = locking.Join(ctx, leases, r.opts); err == nil {
			return lease, nil
		}
	}
	for _, lease := range leases {
		r.giveUpKey(ctx, lease)
	}
	return nil, err
}

// lockOnStandby locks the keys of a task that is on standby. Several keys are first waited for all at once, for as long
// as tasks with the same keys would take that are on standby before it: one of them hands all keys off to the next.
func (r *run) lockOnStandby(ctx, waiting context.Context, d Decision) (*locking.Lease, error) {
	if len(r.keys) == 1 {
		return locking.Wait(waiting, r.Locker, r.keys, r.options())
	}
	hold := cmp.Or(r.SlotBudget.standby.State(r.standby).Hold, r.meanHold())
	together, cancel := context.WithTimeout(waiting, time.Duration(2*d.StandbyLimit)*hold)
	defer cancel()
	lease, err := locking.Wait(together, r.Locker, r.keys, r.options())
	if lease != nil || waiting.Err() != nil {
		return lease, err
	}
	if !r.SlotBudget.beginCollecting() {
		return locking.Wait(waiting, r.Locker, r.keys, r.options())
	}
	defer r.SlotBudget.collecting.Store(false)
	return r.lockEach(ctx, waiting)
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
