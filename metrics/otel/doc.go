// Package otel exports railtoken's metrics and traces through OpenTelemetry. The metrics are those of package
// metrics/prometheus, with dots in place of underscores in their names and without the endings _total and _seconds, such
// as railtoken.wait. It is a module of its own.
//
//	import metrics "github.com/railtoken/railtoken/metrics/otel"
//
//	telemetry, err := metrics.New(metrics.Options{Inspector: inspector})
//	cfg.Observer = telemetry.Observe   // of worker.Config, attach.Options or attach.ProducerOptions
//	err = w.Use(telemetry.Middleware)  // worker.Worker, or asynq.ServeMux around the middleware of the locks
//	info, err := client.EnqueueRaw(ctx, taskType, payload, telemetry.Headers(ctx, nil))
//
// With package attach, call mux.Use(telemetry.Middleware), and enqueue
// asynq.NewTaskWithHeaders(taskType, payload, telemetry.Headers(ctx, nil)).
//
// [Telemetry.Headers] carries the caller's span to the handler, in the headers of the task. [Telemetry.Middleware] makes a
// child span for each run, named "process" followed by the type of the task. The same trace also has these spans:
//
//	railtoken.wait  from the first refusal of a task until its handler runs or the task is given up, across all of its runs
//	railtoken.hold  from then until its keys are released; an error if the lease was lost
//
// Two of the metrics have these names, too. The span of a run that has failed says only that the task failed: an error may
// contain business data.
//
// The span railtoken.wait of a task, and an event on the run that was refused, show what the task waits for:
// railtoken.blocked_by is the label of the holder, which ends with the type and the ID of its task. The railtoken.hold
// of that task has the ID as railtoken.task.id. If the holder is in the same process, the railtoken.wait and the run
// that was refused also have a link to its railtoken.hold. The lock has no room for the span of a holder in another
// process.
//
// No metric and no span ever contains a business key: spans contain its hash, as the log does.
package otel
