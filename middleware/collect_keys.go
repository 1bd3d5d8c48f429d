package middleware

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// starves reports whether the task must collect its keys: it has several, was refused often, the holder of the key that it
// lacks will end soon, and no other task collects one of its keys, in whichever process. Otherwise the keys that it has would
// be idle for long. The caller must then call collect.
func (r *run) starves(ctx context.Context, held *locking.HeldError) bool {
	if len(r.keys) < 2 || r.collected || r.Queue == nil || r.isStopping() ||
		r.active.Met(r.attempt).Count+r.refusals < collectAfter || !r.endsSoon(ctx, held) ||
		!r.SlotBudget.collecting.CompareAndSwap(false, true) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	var ok bool
	if r.collecting, ok = r.engine().Collecting(ctx, r.keys, mostCollect+markAfter); !ok {
		r.SlotBudget.collecting.Store(false)
	}
	return ok
}

// collect locks the keys one after another, outside the SlotBudget. When its time is up, or a holder will not end soon, it
// returns the holder of the key that it lacks.
func (r *run) collect(ctx context.Context) (*locking.Lease, *locking.HeldError, error) {
	r.collected = true
	defer r.SlotBudget.collecting.Store(false)
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout(ctx))
		defer cancel()
		r.collecting(ending)
		r.collecting = nil
	}()
	r.stopWaiting()
	waiting, cancel := r.untilStopping(ctx, time.Now().Add(r.collectTime(ctx, r.meanHold())))
	defer cancel()
	lease, err := r.lockEach(ctx, waiting)
	return r.endWait(ctx, lease, err)
}
