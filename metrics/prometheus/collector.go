package prometheus

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/instruments"
	"github.com/railtoken/railtoken/internal/logsafe"
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
	events     *instruments.Events[series]
}

// series is one of a counter or of a histogram; the other is nil.
type series struct {
	counter   prometheus.Counter
	histogram prometheus.Observer
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
	c.events = instruments.NewEvents(c.series)
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

// series returns the series of an instrument with these labels.
func (c *Collector) series(i *instruments.Instrument, labels []string) series {
	if counter, ok := c.counters[i]; ok {
		return series{counter: counter.WithLabelValues(labels...)}
	}
	return series{histogram: c.histograms[i].WithLabelValues(labels...)}
}

// Observe counts an event. Use it as a [middleware.Observer].
func (c *Collector) Observe(_ context.Context, e middleware.Event) {
	c.gauge.Observe(&e)
	var buffer [instruments.Most]instruments.Sample[series]
	for _, s := range c.events.Append(buffer[:0], &e) {
		switch {
		case s.Series.counter != nil:
			s.Series.counter.Add(s.Value)
		case len(e.Keys) == 1 && e.Waited > 0:
			observeWait(s.Series.histogram, s.Value, e.Keys)
		default:
			s.Series.histogram.Observe(s.Value)
		}
	}
}

// observeWait adds a value of a task that has waited to a histogram. The exemplar has the hash of the key, as it is in the
// log; exemplars of other tasks would cost every task something.
func observeWait(h prometheus.Observer, value float64, keys []string) {
	if with, ok := h.(prometheus.ExemplarObserver); ok {
		with.ObserveWithExemplar(value, prometheus.Labels{"key_hash": logsafe.Keys(keys)[0]})
		return
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
