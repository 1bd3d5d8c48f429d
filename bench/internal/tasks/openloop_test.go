package tasks

import (
	"math"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestEachLoadHasItsLatencies(t *testing.T) {
	t.Parallel()
	r := &results.Results{}
	env := &measure.Env{Dir: t.TempDir(), Rounds: 1, Scale: 2, Results: r}
	if err := env.Measure(t.Context(), openLoopOf(env, []Contestant{SleepRetry, RailtokenFound})); err != nil {
		t.Fatal(err)
	}
	table := r.Table("open-loop")
	if len(table.Rows) != 2 || len(table.Columns) != 19 {
		t.Fatalf("%d rows, and the columns %q", len(table.Rows), table.Columns)
	}
	slowest := math.Inf(1)
	for _, row := range table.Rows {
		for column, values := range row.Values {
			if len(values) != 1 || math.IsNaN(values[0]) || values[0] < 0 {
				t.Errorf("%s: %s is %v", row.Name, column, values)
			}
		}
		if row.Note != "" || len(row.Values) != len(table.Columns) {
			t.Errorf("%s: %s; %v", row.Name, row.Note, row.Values)
		}
		slowest = min(slowest, row.Values["capacity/s"].Median())
	}
	for _, row := range table.Rows {
		if rate := row.Values["same rate/s"].Median(); rate != slowest*commonLoad/100 {
			t.Errorf("%s has arrivals at %v/s, want half of %v", row.Name, rate, slowest)
		}
	}
}
