package middleware

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// observe reports an event of this run to the observer. It fills in what all events of the run have.
func (r *run) observe(ctx context.Context, e *Event) {
	if e.Task == (delayqueue.Task{}) {
		e.Task = delayqueue.Task(r.id)
	}
	e.Type, e.Keys = r.task.Type(), r.keys
	tell(ctx, r.Observer, r.Logger, e)
}

// observeAcquired reports that the handler is about to run.
func (r *run) observeAcquired(ctx context.Context) {
	e := Event{Kind: Acquired, Waited: r.waited(), Took: r.took, Backend: r.backend}
	e.WakeLost = r.Observer != nil && r.refusals == 0 && r.active.ByTimer(r.attempt) && !r.SlotBudget.WasFull() &&
		r.engine().IsFirst(ctx, r.id)
	if r.refusals == 0 {
		e.Woken = r.active.WokenFor()
	} else {
		e.Woken = since(r.freed)
	}
	r.observe(ctx, &e)
}

// observeTimer reports that the task's timer has brought it back.
func (r *run) observeTimer(ctx context.Context) {
	if !r.active.ByTimer(r.attempt) {
		return
	}
	e := Event{Kind: Woke, Cause: ByTimer, Next: delayqueue.Task(r.id)}
	if len(r.keys) == 1 {
		e.Key = r.keys[0]
	}
	r.observe(ctx, &e)
}

// observeRefusal reports the first refusal of the task since its handler last ran.
func (r *run) observeRefusal(ctx context.Context, held *locking.HeldError) {
	if r.refusals == 1 && r.active.Met(r.attempt).Count == 0 {
		r.reported().Conflict(held.Key)
		r.observe(ctx,
			&Event{Kind: Refused, Key: held.Key, Holder: known(held.Holder), Ahead: r.seq.ahead(), Waited: r.waited()})
	}
}

// clock returns the time, or zero if no observer needs it.
func (r *run) clock() time.Time {
	if r.Observer == nil {
		return time.Time{}
	}
	return time.Now()
}

// since returns the time since a reading of clock; zero if there is none.
func since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
