package prometheus

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/instruments"
	"github.com/railtoken/railtoken/internal/redact"
	"github.com/railtoken/railtoken/middleware"
)

// prefix is that of all metrics.
const prefix = "railtoken"

// Options configures [New].
type Options struct {
	// Inspector reads the gauges; nil leaves them out. The caller closes it, after the last scrape.
	Inspector *inspect.Inspector
}

// Collector counts events and exports the metrics. Register it as a prometheus.Collector, and use Observe as the
// Observer. It is safe for concurrent use.
type Collector struct {
	counters   map[*instruments.Instrument]*prometheus.CounterVec
	histograms map[*instruments.Instrument]*prometheus.HistogramVec
	gauges     map[*instruments.Instrument]*prometheus.Desc
	gauge      *instruments.Gauge
	events     instruments.Events
}

// New returns a Collector. It does not connect.
func New(o Options) *Collector {
	c := &Collector{
		counters:   map[*instruments.Instrument]*prometheus.CounterVec{},
		histograms: map[*instruments.Instrument]*prometheus.HistogramVec{},
		gauges:     map[*instruments.Instrument]*prometheus.Desc{},
		gauge:      instruments.NewGauge(o.Inspector),
	}
	for _, i := range instruments.Counters() {
		c.counters[i] = prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: prefix, Name: nameOf(i) + "_total", Help: i.Help}, i.Labels)
	}
	for _, i := range instruments.Histograms() {
		c.histograms[i] = prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Namespace: prefix, Name: nameOf(i), Help: i.Help, Buckets: i.Buckets}, i.Labels)
	}
	for _, i := range instruments.Gauges() {
		c.gauges[i] = prometheus.NewDesc(prefix+"_"+nameOf(i), i.Help, i.Labels, nil)
	}
	return c
}

// nameOf returns the name of a metric without the prefix and without "_total".
func nameOf(i *instruments.Instrument) string {
	name := strings.ReplaceAll(i.Name, ".", "_")
	if i.Unit == "s" {
		name += "_seconds"
	}
	return name
}

// Observe counts an event. Use it as a [middleware.Observer].
func (c *Collector) Observe(_ context.Context, e middleware.Event) {
	var buffer [instruments.Most]instruments.Measurement
	for _, m := range c.events.Append(buffer[:0], e) {
		if counter, ok := c.counters[m.Instrument]; ok {
			counter.WithLabelValues(m.Labels...).Add(m.Value)
			continue
		}
		observe(c.histograms[m.Instrument].WithLabelValues(m.Labels...), m.Value, e)
	}
}

// observe adds a value to a histogram. The exemplar of a wait has the hash of the key, as it is in the log, if there is one
// key; other exemplars would cost every task something.
func observe(h prometheus.Observer, value float64, e middleware.Event) {
	if len(e.Keys) == 1 && e.Waited > 0 {
		if with, ok := h.(prometheus.ExemplarObserver); ok {
			with.ObserveWithExemplar(value, prometheus.Labels{"key_hash": redact.Keys(e.Keys)[0]})
			return
		}
	}
	h.Observe(value)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, v := range c.counters {
		v.Describe(to)
	}
	for _, v := range c.histograms {
		v.Describe(to)
	}
	for _, d := range c.gauges {
		to <- d
	}
}

// Collect implements prometheus.Collector. It reads the gauges, for at most 2 s.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.counters {
		v.Collect(to)
	}
	for _, v := range c.histograms {
		v.Collect(to)
	}
	for _, m := range c.gauge.Read(context.Background()) {
		to <- prometheus.MustNewConstMetric(c.gauges[m.Instrument], prometheus.GaugeValue, m.Value, m.Labels...)
	}
}
