package cost

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildArgument {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestProcessesOfEachContestantSaturateACore(t *testing.T) {
	t.Parallel()
	table := measureOnce(t, "^saturated$").Table("saturated")
	if table == nil || len(table.Rows) != len(saturating) {
		t.Fatalf("got %+v", table)
	}
	for _, row := range table.Rows {
		if strings.HasPrefix(row.Note, "left out") {
			continue // this machine has one core
		}
		for _, column := range []string{"tasks/s", "server µs", "share of the core", "tasks/s of a full core"} {
			if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || got[0] <= 0 {
				t.Errorf("%s: %s is %v", row.Name, column, got)
			}
		}
	}
}

func TestTheRateOfAFullCoreIsWhatItsUseSays(t *testing.T) {
	t.Parallel()
	const used = 500 * time.Millisecond
	table, began := &results.Table{}, time.Unix(1, 0)
	addSaturation(table, "x", look{began, 1500, time.Minute}, look{began.Add(2 * time.Second), 500, time.Minute + used})
	for column, want := range map[string]float64{
		"tasks/s": 500, "server µs": 500, "share of the core": 0.25, "tasks/s of a full core": 2000,
	} {
		if got := table.Of("x", column); len(got) != 1 || math.Abs(got[0]/want-1) > 1e-6 {
			t.Errorf("%s is %v, want %v", column, got, want)
		}
	}
}

func TestAnUnknownContestantIsRefused(t *testing.T) {
	t.Parallel()
	if err := Serve(strings.NewReader(`{"Name": "nobody"}`), os.Stderr); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("got %v", err)
	}
}
