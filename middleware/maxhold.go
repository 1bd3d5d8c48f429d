package middleware

import (
	"cmp"
	"context"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// warnOfMaxHold tells the log, once for each type of task, that a task's time is longer than its lease can be: a
// handler that uses all of it loses the lease each time that it runs, and the task never completes.
func (r *run) warnOfMaxHold(ctx context.Context) {
	maxHold := cmp.Or(r.opts.MaxHold, locking.DefaultMaxHold)
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) <= maxHold {
		return
	}
	if _, warned := r.warned.LoadOrStore(r.task.Type(), true); !warned {
		r.Logger.WarnContext(ctx,
			"tasks may run for longer than their lease can be held, and lose it then: raise MaxHold, or lower asynq.Timeout",
			"type", r.task.Type(), "max_hold", maxHold, "time_left", time.Until(deadline).Round(time.Second))
	}
}
