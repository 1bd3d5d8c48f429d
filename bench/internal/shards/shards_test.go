package shards_test

import (
	"context"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/shards"
)

func TestShardsAreMeasuredAndSetAgainstTheModel(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sections, err := shards.Measure(ctx, report.Env{Dir: t.TempDir(), Reps: 1, Scale: 3, Run: regexp.MustCompile("^shards$"), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(sections) != 2 {
		t.Fatalf("%d sections", len(sections))
	}
	table := sections[0].Tables[0]
	if len(table.Rows) != 4 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	for i, row := range table.Rows {
		for _, column := range table.Columns {
			got := row.Values[column]
			if i == 0 && len(got) == 0 { // one server is no cluster, and has no prediction
				continue
			}
			if len(got) != 1 || !(got[0] > 0) {
				t.Errorf("%s: %s is %v", row.Name, column, got)
			}
		}
		// With six queues for all and 1000 keys, no shard does nearly everything.
		if got := row.Spread("busiest shard / mean").Median; got < 1 || got > 2 {
			t.Errorf("%s: the busiest has %v of the mean", row.Name, got)
		}
	}
	predictions := sections[1].Tables[0]
	for _, row := range predictions.Rows {
		for _, column := range predictions.Columns {
			if got := row.Spread(column).Median; !(got > 0) {
				t.Errorf("%s, %s: %v", row.Name, column, got)
			}
		}
	}
}

func TestMeasureOfNothingIsEmpty(t *testing.T) {
	t.Parallel()
	sections, err := shards.Measure(t.Context(), report.Env{Dir: t.TempDir(), Reps: 1, Scale: 3, Run: regexp.MustCompile("nothing"), Say: t.Logf})
	if err != nil || len(sections) > 0 {
		t.Errorf("got %v, %v", sections, err)
	}
}
