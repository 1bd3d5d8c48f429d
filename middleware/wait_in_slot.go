package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
)

// waitInSlot waits until it is time for another attempt: a delay has passed, a key was released, or the server is
// shutting down. It returns an error only when the task's context has ended.
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

// jittered returns a delay between half and one and a half times of d, the default when d is not positive: tasks that
// were refused at the same moment come back at different ones.
func jittered(d time.Duration) time.Duration {
	if d <= 0 {
		d = defaultInitial
	}
	return d/2 + rand.N(d)
}

// waitOnStandby waits for the keys until it has them or its time is over; then it returns the holder of one of them.
func (r *run) waitOnStandby(ctx context.Context, d Decision) (*locking.Lease, *locking.HeldError, error) {
	waiting, cancel := r.untilStopping(ctx, d.WaitUntil)
	defer cancel()
	lease, err := locking.Wait(waiting, r.Locker, r.keys, r.options())
	if lease != nil {
		r.lease = lease
		return r.ordering.confirm(ctx, lease)
	}
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, held, nil
	}
	return r.tryInOrder(ctx) // sits out an outage
}

// leaveStandby gives up the standby place; got says that the task has its keys. A wake that it has absorbed goes to the
// next waiter. The task itself stays among the waiters, because it has not run.
func (r *run) leaveStandby(ctx context.Context, got bool) {
	key := r.standby
	r.standby = ""
	if r.SlotBudget.standby.Leave(key, got) {
		r.wake(ctx, key, parking.WakeOptions{Most: 1})
	}
}

// stopWaiting gives back what waiting took: room in the budget, the standby place, and the watch.
func (r *run) stopWaiting(ctx context.Context, got bool) {
	if r.standby != "" {
		r.leaveStandby(ctx, got)
	}
	if r.waiting {
		r.SlotBudget.give()
		r.waiting = false
	}
	if r.released != nil {
		r.stopWatch()
		r.released, r.stopWatch = nil, nil
	}
}
