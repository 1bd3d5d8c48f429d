package middleware

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"
)

// begin notes in Redis that the run begins, if others may supersede its task, and returns the handler. If a task has begun to run with a
// later payload, it is one that only tells so. The task has its keys, so no other one begins meanwhile.
func (r *run) begin(ctx context.Context, next asynq.Handler) (asynq.Handler, error) {
	if supersedeOf(r.Strategy) != nil && r.order == BestEffort {
		if err := r.ask(ctx, func(ctx context.Context) (err error) {
			r.since, err = r.active.BeginSuperseding(ctx)
			return err
		}); err != nil {
			return nil, err
		}
	}
	header := r.task.Headers()[line.LatestHeader]
	if header == "" {
		return next, nil
	}
	var by line.Task
	if err := r.ask(ctx, func(ctx context.Context) (err error) {
		by, err = r.active.BeginLatest(ctx, header)
		return err
	}); err != nil {
		return nil, err
	}
	if by == (line.Task{}) {
		return next, nil
	}
	return asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if by != r.id { // else the run is over: its task was taken back, and has got another payload
			r.tellSuperseded(ctx, delayqueue.Task(by))
		}
		return nil
	}), nil
}

// ask makes a call to Redis. It waits for Redis as for the locks. Without these, if they have ended meanwhile, the task waits as in an
// outage.
func (r *run) ask(ctx context.Context, call func(context.Context) error) error {
	var o outage
	for {
		asking, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
		err := call(asking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.lease != nil && r.lease.Err() != nil && !r.nowhere():
			return r.postpone(r.lease.Err())
		case err == nil:
			return nil
		}
		if err := r.awaitRedis(ctx, &o, err); err != nil {
			return err
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
