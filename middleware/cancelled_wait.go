package middleware

import (
	"context"
	"sync"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// cancelledWait has a task parked whose run asynq ends while it waits in its slot, as Inspector.CancelProcessing does: it
// has not failed, but asynq counts every run that it ends as a failure. asynq may acknowledge the run before the task's
// goroutine learns of it.
type cancelledWait struct {
	mu     sync.Mutex
	over   bool // the wait has ended
	parked *line.Parked
	tell   func(line.Parked)
}

// note notes that the task was parked. It is told once the wait has ended.
func (w *cancelledWait) note(p line.Parked) {
	w.mu.Lock()
	over := w.over
	w.parked = &p
	w.mu.Unlock()
	if over {
		w.tell(p)
	}
}

// end notes that the wait has ended.
func (w *cancelledWait) end() {
	w.mu.Lock()
	parked := w.parked
	w.over = true
	w.mu.Unlock()
	if parked != nil {
		w.tell(*parked)
	}
}

// parkIfCancelled prepares for the end of the run while it waits in its slot for a key. ended is called with the error of
// the wait, and returns the error that ends the run: that of a parked task if asynq has ended it, and else the same.
func (r *run) parkIfCancelled(ctx context.Context, held *locking.HeldError) (ended func(error) error) {
	unchanged := func(err error) error { return err }
	requeue, parks := RequeueOf(r.Strategy)
	if r.active == nil || !parks {
		return unchanged
	}
	c := r.facts(r.firstAt, held)
	c.MayWait = false
	d := requeue.Decide(c)
	if d.Delay <= 0 {
		d.Delay = defaultDelay(held.Holder)
	}
	w := &cancelledWait{tell: func(p line.Parked) { r.parked(ctx, held, p) }}
	r.active.Park(held.Key, r.parkOptions(d, held), w.note)
	return func(err error) error {
		if _, waiting := waits(err); waiting { // it is postponed
			return err
		}
		if r.active.Resume(ctx) {
			return err
		}
		w.end()
		return r.conflict(held, Park, d.Delay)
	}
}
