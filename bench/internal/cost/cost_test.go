package cost_test

import (
	"context"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/cost"
	"github.com/railtoken/railtoken/bench/internal/report"
)

func TestEveryLockHasACost(t *testing.T) {
	t.Parallel()
	table := measure(t, "cost-one")
	if len(table.Rows) < 6 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	for _, row := range table.Rows {
		for _, column := range []string{"allocations", "bytes", "client µs", "server µs"} {
			if got := row.Values[column]; len(got) != 1 || !(got[0] > 0) {
				t.Errorf("%s: %s is %v", row.Name, column, got)
			}
		}
	}
}

func TestAnIdleKeyLeavesNothingAfterItsFenceTTL(t *testing.T) {
	t.Parallel()
	table := measure(t, "cost-memory")
	for name, want := range map[string]float64{
		"key that is held": 2, "key that was given back, until FenceTTL": 1, "key that was given back, after FenceTTL": 0,
	} {
		if got := table.Row(name).Values["Redis keys each"]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v Redis keys each, want %v", name, got, want)
		}
	}
	if len(table.Targets) != 2 || !table.Targets[0].Met() {
		t.Errorf("targets: %+v", table.Targets)
	}
}

func TestAParkedTaskTakesMoreThanAsynqsOwn(t *testing.T) {
	t.Parallel()
	table := measure(t, "cost-memory")
	bare := table.Row("task in asynq's retry set").Spread("bytes each").Median
	for _, name := range []string{"parked task", "parked task, `FIFO`"} {
		got, beyond := table.Row(name).Spread("bytes each").Median, table.Row(name+", beyond asynq's own").Spread("bytes each").Median
		if !(bare > 0) || !(got > bare) || got-bare != beyond {
			t.Errorf("%s: %v bytes, bare asynq's %v, beyond %v", name, got, bare, beyond)
		}
	}
}

// measure measures a table once.
func measure(t *testing.T, run string) *report.Table {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sections, err := cost.Measure(ctx, report.Env{Dir: t.TempDir(), Reps: 1, Scale: 3, Run: regexp.MustCompile("^" + run + "$"), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(sections) != 1 || len(sections[0].Tables) != 1 || sections[0].Tables[0].Name != run {
		t.Fatalf("got %+v", sections)
	}
	return sections[0].Tables[0]
}
