package shards

import (
	"fmt"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	modelName = "shards-model"
	// modelRTT is assumed, in us: that of two machines in one data centre.
	modelRTT = 500
)

var (
	modelShards  = []int{1, 2, 4, 8, 16}
	modelWorkers = []int{1, 2, 4, 8, 16, 32, 64}
)

// modelSection shows what the model predicts.
func modelSection(m Model) *report.Section {
	t := &report.Table{Name: modelName, Title: "Predicted tasks/s: a model, not a measurement"}
	for _, k := range modelShards {
		t.Columns = append(t.Columns, shardName(k))
	}
	chart := &report.Chart{
		File: modelName, Title: "Predicted tasks/s (a model)", XLabel: "worker processes with a core each", YLabel: "tasks/s", LogX: true, LogY: true,
	}
	for _, n := range modelWorkers {
		row := t.Row(workersName(n))
		for _, k := range modelShards {
			row.Add(shardName(k), m.Rate(k, n))
		}
	}
	for _, k := range modelShards {
		line := report.Series{Name: shardName(k)}
		for _, n := range modelWorkers {
			line.Points = append(line.Points, report.Point{X: float64(n), Spread: measure.NewSpread([]float64{m.Rate(k, n)})})
		}
		chart.Series = append(chart.Series, line)
	}
	return &report.Section{
		Name: modelName, Title: "What would more machines bear? A model", Tables: []*report.Table{t}, Charts: []*report.Chart{chart},
		Text: fmt.Sprintf("Nothing of this was measured but the costs that it is made of: those of a task on the largest cluster above. n workers and k shards"+
			" have a core each, and tasks/s is the least of three limits: `n / client`, what the workers' cores bear; `k / (server × imbalance)`, what the busiest"+
			" shard bears (one alone has all); and `n × %d fetchers / %d µs`, as an asynq server fetches one task after another and a round trip is assumed to"+
			" take %d µs. It takes for granted that queues and keys are spread over the shards as above, that tasks do nothing and hardly ever meet another one"+
			" of their key, that every core is as quick as one here and that what a task costs does not change with the number of machines. It leaves out the"+
			" network's own limits, and that the index of all parked tasks is one key, and so lies on one shard. Memory is not in it: parked tasks × bytes of"+
			" one + keys that were given back within FenceTTL × bytes of one, both above.", m.Fetchers, int(m.RTT), int(m.RTT)),
	}
}

func workersName(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprint(n, " workers")
}
