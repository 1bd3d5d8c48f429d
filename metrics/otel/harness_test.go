package otel_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/metrics/otel"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// orderKey has letters that no random number has.
const orderKey = "order:xyzzy"

type order struct{ ID string }

// rig is a worker with telemetry. Its handlers end when the test lets them.
type rig struct {
	*testing.T
	redis     *redis.Client
	client    *worker.Client
	tracer    trace.Tracer
	telemetry *otel.Telemetry
	spans     *tracetest.SpanRecorder
	reader    *metric.ManualReader
	began     chan string // IDs of tasks
	goOn      chan error

	mu     sync.Mutex
	events []middleware.Event
	told   chan struct{}
}

func newRig(t *testing.T, strategy middleware.Strategy) *rig {
	t.Helper()
	server := redistest.Start(t)
	r := &rig{
		T: t, redis: redis.NewClient(&redis.Options{Addr: server.Addr()}), spans: tracetest.NewSpanRecorder(),
		reader: metric.NewManualReader(), began: make(chan string, 10), goOn: make(chan error), told: make(chan struct{}, 1000),
	}
	t.Cleanup(func() { r.redis.Close() })
	inspector, err := inspect.New(inspect.Options{Tasks: r.redis})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inspector.Close() })
	traces := sdk.NewTracerProvider(sdk.WithSpanProcessor(r.spans))
	r.tracer = traces.Tracer("test")
	r.telemetry, err = otel.New(otel.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(r.reader)), TracerProvider: traces, Propagator: propagation.TraceContext{},
		Inspector: inspector,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.telemetry.Close(); err != nil {
			t.Error(err)
		}
	})
	at := worker.Redis{Addr: server.Addr()}
	w, err := worker.New(worker.Config{
		Redis: at, Observer: r.observe, Strategy: strategy, Concurrency: 4, LockTTL: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Use(r.telemetry.Middleware); err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "audit", worker.Handler[order]{
		Keys: func(o order) []string { return []string{middleware.Key("order", o.ID)} }, Run: r.run,
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.client, err = worker.NewClient(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		r.client.Close()
	})
	return r
}

func (r *rig) run(ctx context.Context, _ order) error {
	id, _ := asynq.GetTaskID(ctx)
	r.began <- id
	select {
	case err := <-r.goOn:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue enqueues a task in a span of its own.
func (r *rig) enqueue(id string) trace.SpanContext {
	r.Helper()
	ctx, span := r.tracer.Start(r.Context(), "request")
	defer span.End()
	_, err := r.client.EnqueueRaw(ctx, "audit", []byte(`{"ID":"xyzzy"}`), r.telemetry.Headers(ctx, nil), asynq.TaskID(id), asynq.MaxRetry(0))
	if err != nil {
		r.Fatal(err)
	}
	return span.SpanContext()
}

func (r *rig) observe(ctx context.Context, e middleware.Event) {
	r.telemetry.Observe(ctx, e)
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	r.told <- struct{}{}
}

// await waits for n events of a kind.
func (r *rig) await(kind middleware.EventKind, n int) {
	r.Helper()
	for late := time.After(30 * time.Second); ; {
		r.mu.Lock()
		found := 0
		for _, e := range r.events {
			if e.Kind == kind {
				found++
			}
		}
		r.mu.Unlock()
		if found >= n {
			return
		}
		select {
		case <-r.told:
		case <-late:
			r.Fatalf("%d of %d events %s", found, n, kind)
		}
	}
}

// ended waits for n ended spans of a name.
func (r *rig) ended(name string, n int) []sdk.ReadOnlySpan {
	r.Helper()
	var found []sdk.ReadOnlySpan
	for deadline := time.Now().Add(30 * time.Second); len(found) < n; {
		if time.Now().After(deadline) {
			r.Fatalf("%d of %d spans %s", len(found), n, name)
		}
		found = nil
		for _, s := range r.spans.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return found
}

// hold holds the order from another process.
func (r *rig) hold() *locking.Lease {
	r.Helper()
	single, err := locking.NewSingle(r.redis, locking.SingleOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { single.Close() })
	lease, err := single.Acquire(r.Context(), []string{orderKey}, locking.Options{Label: "elsewhere/1/other/x"})
	if err != nil {
		r.Fatal(err)
	}
	return lease
}

// valueOf returns an attribute of a span as text.
func valueOf(s sdk.ReadOnlySpan, name string) string {
	all := attribute.NewSet(s.Attributes()...)
	v, _ := all.Value(attribute.Key(name))
	return v.String()
}

// metrics returns the sum of the points of each metric, and all labels as text.
func (r *rig) metrics() (sums map[string]float64, labels string) {
	r.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(r.Context(), &all); err != nil {
		r.Fatal(err)
	}
	sums = map[string]float64{}
	var text strings.Builder
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[m.Name] += float64(p.Value)
					fmt.Fprintln(&text, m.Name, p.Attributes.ToSlice())
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[m.Name] += float64(p.Count)
					fmt.Fprintln(&text, m.Name, p.Attributes.ToSlice())
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					sums[m.Name] += p.Value
					fmt.Fprintln(&text, m.Name, p.Attributes.ToSlice())
				}
			}
		}
	}
	return sums, text.String()
}
