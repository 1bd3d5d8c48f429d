package middleware

import (
	"context"
	"fmt"

	"github.com/railtoken/railtoken/locking"
)

// acquire locks the keys. As long as another holder has one of them, it does what the strategy decides.
func (r *run) acquire(ctx context.Context) (lease *locking.Lease, err error) {
	defer r.stopWaiting()
	lease, held, err := r.tryInOrder(ctx)
	for err == nil && lease == nil {
		d := r.decide(ctx, held)
		collects := d.Outcome == Park && r.starves(ctx, held)
		if d.Outcome == Park && !collects {
			d = r.stay(ctx, d)
		}
		switch {
		case collects || d.Outcome == WaitInSlot:
			lease, held, err = r.waitFor(ctx, held, d, collects)
		case d.Outcome == Park:
			r.stopWaiting()
			return nil, r.park(ctx, d, held)
		case d.Outcome < Archive || d.Outcome > WaitInSlot:
			return nil, r.undecided(ctx, held, fmt.Errorf("middleware: the strategy returned the outcome %q, "+
				"which it cannot choose: return Archive, Retry, Discard, Complete, Park or WaitInSlot", d.Outcome))
		default:
			return nil, r.conflict(held, d.Outcome, 0)
		}
	}
	return lease, err
}

// waitFor waits in the slot for the keys, and tries to lock them.
func (r *run) waitFor(ctx context.Context, held *locking.HeldError, d Decision, collects bool) (
	lease *locking.Lease, next *locking.HeldError, err error,
) {
	ended := r.parkIfCancelled(ctx, held)
	switch {
	case collects:
		lease, next, err = r.collect(ctx)
	default:
		if err = r.waitInSlot(ctx, d); err == nil {
			lease, next, err = r.tryInOrder(ctx)
		}
	}
	if err = ended(err); err != nil && lease != nil { // asynq has ended the run meanwhile
		r.giveUp(context.WithoutCancel(ctx), lease)
		r.lease, lease = nil, nil
	}
	return lease, next, err
}
