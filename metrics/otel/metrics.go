package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/instruments"
)

// prefix is that of the names of all metrics, spans and their attributes.
const prefix = "railtoken."

// meters are the instruments of OpenTelemetry by ours.
type meters struct {
	counters   map[*instruments.Instrument]metric.Int64Counter
	histograms map[*instruments.Instrument]metric.Float64Histogram
	gauge      *instruments.Gauge
	gauges     metric.Registration
}

func newMeters(meter metric.Meter, inspector *inspect.Inspector) (m *meters, err error) {
	m = &meters{
		counters: map[*instruments.Instrument]metric.Int64Counter{}, histograms: map[*instruments.Instrument]metric.Float64Histogram{},
		gauge: instruments.NewGauge(inspector),
	}
	for _, i := range instruments.Counters() {
		counter, failed := meter.Int64Counter(prefix+i.Name, metric.WithDescription(i.Help))
		m.counters[i], err = counter, errors.Join(err, failed)
	}
	for _, i := range instruments.Histograms() {
		histogram, failed := meter.Float64Histogram(prefix+i.Name, metric.WithDescription(i.Help), metric.WithUnit(i.Unit),
			metric.WithExplicitBucketBoundaries(i.Buckets...))
		m.histograms[i], err = histogram, errors.Join(err, failed)
	}
	if err != nil {
		return m, err
	}
	all := map[*instruments.Instrument]metric.Float64Observable{}
	var observed []metric.Observable
	for _, i := range instruments.Gauges() {
		g, failed := meter.Float64ObservableGauge(prefix+i.Name, metric.WithDescription(i.Help), metric.WithUnit(i.Unit))
		all[i], observed, err = g, append(observed, g), errors.Join(err, failed)
	}
	if err != nil {
		return nil, err
	}
	m.gauges, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, value := range m.gauge.Read(ctx) {
			o.ObserveFloat64(all[value.Instrument], value.Value, attributesOf(value.Instrument, value.Labels))
		}
		return nil
	}, observed...)
	return m, err
}

// series is one of a counter or of a histogram, which is nil otherwise.
type series struct {
	counter   metric.Int64Counter
	histogram metric.Float64Histogram
	added     []metric.AddOption // the labels, for either of them
	recorded  []metric.RecordOption
}

// series returns the series of an instrument with these labels.
func (m *meters) series(i *instruments.Instrument, labels []string) series {
	of := attributesOf(i, labels)
	if counter, ok := m.counters[i]; ok {
		return series{counter: counter, added: []metric.AddOption{of}}
	}
	return series{histogram: m.histograms[i], recorded: []metric.RecordOption{of}}
}

// add adds a value to a series.
func (s series) add(ctx context.Context, value float64) {
	if s.counter != nil {
		s.counter.Add(ctx, int64(value), s.added...)
		return
	}
	s.histogram.Record(ctx, value, s.recorded...)
}

// attributesOf returns the values of an instrument's labels as attributes.
func attributesOf(i *instruments.Instrument, labels []string) metric.MeasurementOption {
	all := make([]attribute.KeyValue, len(labels))
	for n, value := range labels {
		all[n] = attribute.String(i.Labels[n], value)
	}
	return metric.WithAttributeSet(attribute.NewSet(all...))
}

// close ends the reading of the gauges.
func (m *meters) close() error {
	return m.gauges.Unregister()
}
