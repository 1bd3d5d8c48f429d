package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// waitInSlot waits until the next attempt: until a delay has passed, a key was released, or the server begins to shut
// down. It returns an error only if the task's context has ended.
func (r *run) waitInSlot(ctx context.Context, d Decision) error {
	if r.released == nil && r.watcher != nil && !r.blind {
		released, stop, err := r.watcher.Watch(ctx, r.keys)
		if err != nil {
			r.Logger.WarnContext(ctx, "releases of keys cannot be watched; polling goes on", "error", err)
			r.blind = true
		}
		r.released, r.stopWatch = released, stop
	}
	return r.pause(ctx, min(jittered(d.Delay), time.Until(d.WaitUntil)), r.released)
}

// jittered returns a random delay between half and one and a half times d, so that tasks that were refused at the same
// moment try again at different ones. If d is not positive, it uses the default.
func jittered(d time.Duration) time.Duration {
	if d <= 0 {
		d = defaultInitial
	}
	return d/2 + rand.N(d)
}

// endWait returns what a wait for the keys has led to: a lease, or the holder of one of the keys.
func (r *run) endWait(ctx context.Context, lease *locking.Lease, err error) (*locking.Lease, *locking.HeldError, error) {
	if lease != nil {
		r.lease, r.took, r.freed = lease, 0, time.Time{}
		return lease, nil, nil
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, held, nil
	}
	return r.tryInOrder(ctx) // waits for the end of an outage
}

// stopWaiting releases what waiting has reserved: the share of the budget, and the watch.
func (r *run) stopWaiting() {
	if r.waiting {
		r.SlotBudget.give()
		r.waiting = false
	}
	if r.released != nil {
		r.stopWatch()
		r.released, r.stopWatch = nil, nil
	}
}
