package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/instruments"
	"github.com/railtoken/railtoken/middleware"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/railtoken/railtoken/metrics/otel"

// Options configures [New]. A provider or propagator that is nil is the global one of OpenTelemetry.
type Options struct {
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Propagator writes spans into the headers of tasks and reads them. The global one does nothing until
	// otel.SetTextMapPropagator is called.
	Propagator propagation.TextMapPropagator
	// Inspector reads the gauges; nil leaves them out. The caller closes it, after the Telemetry.
	Inspector *inspect.Inspector
}

// Telemetry turns events into metrics and spans. It is safe for concurrent use.
type Telemetry struct {
	events     *instruments.Events[series]
	meters     *meters
	spans      *spans
	propagator propagation.TextMapPropagator
}

// New returns a Telemetry. It does not connect. It returns an error if the MeterProvider refuses an instrument.
func New(o Options) (*Telemetry, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = otel.GetTextMapPropagator()
	}
	m, err := newMeters(o.MeterProvider.Meter(scope), o.Inspector)
	if err != nil {
		return nil, fmt.Errorf("otel: create the instruments: %w", err)
	}
	return &Telemetry{
		events: instruments.NewEvents(m.series), meters: m, spans: newSpans(o.TracerProvider.Tracer(scope)), propagator: o.Propagator,
	}, nil
}

// Observe counts an event and makes the spans of waits and holds. Use it as a [middleware.Observer].
func (t *Telemetry) Observe(ctx context.Context, e middleware.Event) {
	var buffer [instruments.Most]instruments.Sample[series]
	for _, s := range t.events.Append(buffer[:0], &e) {
		s.Series.add(ctx, s.Value)
	}
	t.meters.gauge.Observe(&e)
	t.spans.observe(ctx, e)
}

// Close stops reading the gauges. Close the Telemetry after the workers, and before the Inspector.
func (t *Telemetry) Close() error { return t.meters.close() }
