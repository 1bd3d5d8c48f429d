package prometheus_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// scrapeInterval is that of the recordings.
const scrapeInterval = 15 * time.Second

// recording is what a Prometheus would have scraped from the workers of an installation.
type recording struct {
	last   time.Time // scrape
	n      int       // scrapes
	series map[string][]string
}

func newRecording() *recording { return &recording{series: map[string][]string{}} }

// scrape adds a sample to each series. Those of a worker that is dead have none.
func (r *recording) scrape(in *installation) {
	r.last = time.Now()
	for _, w := range in.workers {
		if w.dead.Load() {
			continue
		}
		families, err := w.registry.Gather()
		if err != nil {
			in.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				r.add(family.GetName(), w.name, m)
			}
		}
	}
	r.n++
}

func (r *recording) add(name, instance string, m *dto.Metric) {
	var labels strings.Builder
	fmt.Fprintf(&labels, `job="orders",instance=%q`, instance)
	for _, l := range m.GetLabel() {
		fmt.Fprintf(&labels, ",%s=%q", l.GetName(), l.GetValue())
	}
	h := m.GetHistogram()
	if h == nil {
		r.sample(name+"{"+labels.String()+"}", m.GetCounter().GetValue()+m.GetGauge().GetValue())
		return
	}
	for _, b := range h.GetBucket() {
		r.sample(fmt.Sprintf(`%s_bucket{%s,le="%g"}`, name, labels.String(), b.GetUpperBound()), float64(b.GetCumulativeCount()))
	}
	r.sample(name+`_bucket{`+labels.String()+`,le="+Inf"}`, float64(h.GetSampleCount()))
	r.sample(name+"_count{"+labels.String()+"}", float64(h.GetSampleCount()))
}

func (r *recording) sample(series string, value float64) {
	all := r.series[series]
	for len(all) < r.n {
		all = append(all, "_") // there was none
	}
	r.series[series] = append(all, strconv.FormatFloat(value, 'g', -1, 64))
}

// check has Prometheus evaluate the shipped rules over the recording every 15 s, and compares the results of queries with
// what they should be: at a time since the beginning, an expression and the series that it has, each of value 1.
func (r *recording) check(t *testing.T, wants ...want) {
	t.Helper()
	promtool := program(t, "promtool")
	rules, err := filepath.Abs("rules/railtoken.yml")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n", rules)
	for _, series := range slices.Sorted(maps.Keys(r.series)) {
		fmt.Fprintf(&text, "      - {series: '%s', values: '%s'}\n", series, strings.Join(r.series[series], " "))
	}
	text.WriteString("    promql_expr_test:\n")
	for _, w := range wants {
		fmt.Fprintf(&text, "      - expr: '%s'\n        eval_time: %ds\n        exp_samples:\n", w.expr, int(w.at.Seconds()))
		for _, labels := range w.series {
			fmt.Fprintf(&text, "          - {labels: '%s', value: 1}\n", labels)
		}
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// want is a query and its result.
type want struct {
	at     time.Duration
	expr   string
	series []string
}

// fired wants exactly these alerts to have fired at any time.
func (r *recording) fired(alerts ...string) want {
	w := want{time.Duration(r.n) * scrapeInterval, `count by (alertname) (count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[3h])))`, nil}
	for _, name := range alerts {
		w.series = append(w.series, fmt.Sprintf(`{alertname=%q}`, name))
	}
	return w
}
