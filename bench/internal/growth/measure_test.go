package growth_test

import (
	"context"
	"math"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/growth"
	"github.com/railtoken/railtoken/bench/internal/report"
)

func TestMeasureKeepsCommandsOfKeysApart(t *testing.T) {
	t.Parallel()
	tables := measure(t, "growth-keys")
	table := tables["growth-keys"]
	if len(table.Rows) != 3 || len(table.Targets) != 4 {
		t.Fatalf("%d rows, %d targets", len(table.Rows), len(table.Targets))
	}
	for _, row := range table.Rows {
		// A task that meets no other one is fetched, locked, released and finished: four commands, of which some go out together with those of others.
		if got := row.Spread("commands").Median; got < 3 || got > 8 {
			t.Errorf("%s keys: %v commands for a task", row.Name, got)
		}
	}
}

func TestALifeIsParkedOnceWhateverTheDepth(t *testing.T) {
	t.Parallel()
	tables := measure(t, "growth-waiters-(next|ordered)")
	for _, name := range []string{"growth-waiters-next", "growth-waiters-ordered"} {
		table := tables[name]
		if len(table.Rows) != 3 || len(table.Targets) != 4 {
			t.Fatalf("%s: %d rows, %d targets", name, len(table.Rows), len(table.Targets))
		}
		for _, row := range table.Rows {
			// Enqueued by 1 command or more, fetched twice, refused, parked, woken, locked, released and finished; some go out together with others.
			if got := row.Spread("commands").Median; got < 7 || got > 40 {
				t.Errorf("%s at %s: %v commands for a life", name, row.Name, got)
			}
		}
	}
}

func TestACallIsOneCommandAtEveryDepth(t *testing.T) {
	t.Parallel()
	tables := measure(t, "growth-calls")
	for _, row := range tables["growth-calls-next"].Rows {
		for _, column := range []string{"Park commands", "Wake commands"} {
			if got := row.Spread(column).Median; got != 1 {
				t.Errorf("%s at %s: %v", column, row.Name, got)
			}
		}
	}
	for _, row := range tables["growth-calls-ordered"].Rows {
		for _, column := range []string{"Enqueue µs", "Turn µs", "LeaveLine µs", "Turn commands", "server µs"} {
			if got := row.Spread(column).Median; !(got > 0) {
				t.Errorf("%s at %s: %v", column, row.Name, got)
			}
		}
	}
}

func TestMeasureCountsSlotsAndWorkers(t *testing.T) {
	t.Parallel()
	tables := measure(t, "growth-(slots|workers)$")
	for name, rows := range map[string]int{"growth-slots": 7, "growth-workers": 4} {
		table := tables[name]
		if table == nil || len(table.Rows) != rows {
			t.Fatalf("%s: %+v", name, table)
		}
		for _, row := range table.Rows {
			if got := row.Spread("tasks/s").Median; !(got > 0) {
				t.Errorf("%s, %s: %v tasks/s", name, row.Name, got)
			}
		}
	}
}

func TestMeasureOfNothingIsEmpty(t *testing.T) {
	t.Parallel()
	if tables := measure(t, "nothing"); len(tables) != 0 {
		t.Errorf("got %v", tables)
	}
}

// measure measures once what the pattern names, and returns the tables, whose figures are all numbers.
func measure(t *testing.T, run string) map[string]*report.Table {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sections, err := growth.Measure(ctx, report.Env{Dir: t.TempDir(), Reps: 1, Scale: 2, Run: regexp.MustCompile(run), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]*report.Table{}
	for _, section := range sections {
		for _, table := range section.Tables {
			tables[table.Name] = table
			for _, row := range table.Rows {
				for _, column := range table.Columns {
					if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || math.IsInf(got[0], 0) {
						t.Errorf("%s, %s: %s is %v", table.Name, row.Name, column, got)
					}
				}
			}
		}
	}
	return tables
}
