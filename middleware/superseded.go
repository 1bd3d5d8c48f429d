package middleware

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
)

// unlessSuperseded returns the handler of the task, or, if a task has begun to run with a later payload, one that only tells so. The
// task has its keys, so no other one begins meanwhile. It waits for Redis as for the locks.
func (r *run) unlessSuperseded(ctx context.Context, next asynq.Handler) (asynq.Handler, error) {
	header := r.task.Headers()[line.LatestHeader]
	if header == "" {
		return next, nil
	}
	var o outage
	for {
		asking, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
		by, err := r.active.BeginLatest(asking, header)
		cancel()
		switch {
		case err == nil && by == (line.Task{}):
			return next, nil
		case err == nil:
			return asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				if by != r.id { // else the run is over: its task was taken back, and has got another payload
					r.tellSuperseded(ctx, delayqueue.Task(by))
				}
				return nil
			}), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if err := r.awaitRedis(ctx, &o, err); err != nil {
			return nil, err
		}
	}
}

// tellSuperseded reports that a task completes without its handler, and keeps why as its result.
func (r *run) tellSuperseded(ctx context.Context, by delayqueue.Task) {
	r.observe(ctx, &Event{Kind: taskrun.Superseded, Next: by, Waited: r.waited()})
	if _, err := r.task.ResultWriter().Write([]byte(line.SupersededResult + by.String())); err != nil {
		r.Logger.WarnContext(ctx, "why a task was superseded could not be kept with it", "task", r.id.String(), "error", err)
	}
}
