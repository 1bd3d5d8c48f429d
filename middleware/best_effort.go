package middleware

import (
	"context"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// bestEffort is the ordering of tasks that keep no order.
type bestEffort struct{ *run }

// orderingOf returns the ordering of a run.
func (r *run) orderingOf() ordering {
	if r.order == BestEffort {
		return bestEffort{r}
	}
	return &sequence{run: r}
}

func (bestEffort) accepts([]string) error { return nil }

func (bestEffort) admit(context.Context) (*locking.HeldError, error) {
	return nil, nil //nolint:nilnil // it may always try
}

func (bestEffort) ahead() int { return 0 }

func (bestEffort) stays(context.Context, bool, error) bool { return false }

func (bestEffort) returns(error) bool { return false }

func (bestEffort) place(bool) colocated.Place { return colocated.NoPlace }

func (r bestEffort) wakes(bool) func(string) int { return r.planWake }

func (bestEffort) leave(context.Context, bool) line.Front { return line.Front{} }

func (r bestEffort) wakeNext(ctx context.Context, lease *locking.Lease, _ line.Front, _ bool) {
	r.wakeWaiters(ctx, lease)
	r.leaveNeedless(ctx)
}

func (bestEffort) wakeAgain(context.Context) {}

func (bestEffort) quit(context.Context) {}

func (bestEffort) park(*line.ParkOptions, bool) {}

func (bestEffort) looksAgain(context.Context, string, line.Task) bool { return true }

func (r bestEffort) giveUp(ctx context.Context, lease *locking.Lease) { r.giveUpKeys(ctx, lease) }

// leaveNeedless removes a task from the sequence that its producer has put it in, although its handler keeps no order.
func (r bestEffort) leaveNeedless(ctx context.Context) {
	for _, key := range r.keys {
		if line.EnqueuedFor(r.id, key, r.task.Headers()) {
			r.remove(ctx, r.id, key)
		}
	}
}

// remove removes a task from the sequence of a key, and returns the next tasks.
func (r *run) remove(ctx context.Context, t line.Task, key string) line.Front {
	left, _ := retry(ctx, r, "a task could not leave the sequence of its key; those behind it wait until it is gone",
		func(ctx context.Context) (line.Front, error) { return r.engine().Remove(ctx, t, key) })
	return left
}
