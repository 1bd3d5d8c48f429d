package stock

import (
	"context"
	"math"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestEveryContestantDoesItsTasks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	env := &measure.Env{
		Rounds: 1, Scale: 1, Dir: t.TempDir(), Run: regexp.MustCompile("^stock"), Results: &results.Results{Rounds: 1},
	}
	if err := Measure(ctx, env); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stock", "stock-far"} {
		table := env.Results.Table(name)
		if table == nil || len(table.Rows) != len(entrants) {
			t.Fatalf("%s: %+v", name, table)
		}
		for _, row := range table.Rows {
			for _, column := range []string{"tasks/s", "client µs", "server µs"} {
				if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || math.IsInf(got[0], 0) {
					t.Errorf("%s, %s: %s is %v", name, row.Name, column, got)
				}
			}
		}
	}
	// A stock server fetches one task after another, and the slots had theirs before the clock started.
	const slice, roundTrip = 400, 700e-6
	most := slice / ((slice - slots) * roundTrip)
	if far := env.Results.Table("stock-far").Of("bare x 1", "tasks/s").Median(); far > most {
		t.Errorf("%v tasks/s with a network between, want %v at most", far, most)
	}
}
