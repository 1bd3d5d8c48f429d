package line

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Overdue reports whether the deadline of the task has passed, so that asynq does not run its handler again.
func (r *Run) Overdue() bool { return r != nil && passed(deadlineOf(r.message), time.Now()) }

// passOn removes the task of a run from its sequence in the background, and wakes the first task that is left, because
// asynq has ended the run without its handler. While the task was active, it counted as the first of its sequence, and a
// release woke no other. A task that is still among the waiters would keep its place.
func (r *Run) passOn() {
	e := r.queue
	e.background(e.closing, followUpLimit, func(ctx context.Context) {
		_, err := Retry(ctx, e.closing.Done(), func(ctx context.Context) (none struct{}, err error) {
			waits, sequence, err := e.keysOf(ctx, r.task)
			for _, key := range slices.Compact([]string{waits, sequence}) {
				if key == "" {
					continue
				}
				left, failed := e.front(ctx, key, r.task.Entry())
				if failed == nil && left.Parked > 0 && len(left.Next) > 0 {
					var w Woken
					w, failed = e.WakeTask(ctx, key, left.Next[0])
					e.repaired(key, w, false)
				}
				err = errors.Join(err, failed)
			}
			return none, err
		})
		if err != nil {
			e.log.WarnContext(ctx, "passing on a wake failed; the waiters' timers will bring them back", "task",
				r.task.String(), "error", err)
		}
	})
}
