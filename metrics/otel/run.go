package otel

import (
	"context"
	"maps"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/railtoken/railtoken/attach"
)

// Headers returns headers for a task: the given ones, whose map is not modified, and those that carry the span of ctx.
func (t *Telemetry) Headers(ctx context.Context, headers map[string]string) map[string]string {
	all := maps.Clone(headers)
	if all == nil {
		all = map[string]string{}
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(all))
	return all
}

// Middleware makes a span for each run of a task, as a child of the span in the task's headers. Put it around the
// locks, so that the spans of waits and holds are in the same trace. The span of a run whose task waits is not marked
// as an error.
func (t *Telemetry) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(task.Headers()))
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		ctx, span := t.spans.tracer.Start(ctx, "process "+valid(task.Type()), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(append(taskAttributes(queue, id, task.Type()), attribute.Int(prefix+"task.retried", retried))...))
		defer span.End()
		err := next.ProcessTask(ctx, task)
		if err != nil && !attach.Waits(err) {
			span.SetStatus(codes.Error, "the task failed")
		}
		return err
	})
}
