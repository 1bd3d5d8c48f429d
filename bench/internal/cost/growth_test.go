package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestATaskCostsACommandForEachStep(t *testing.T) {
	t.Parallel()
	// Without a conflict it is locked, and then released and finished; each command may be for the tasks of all slots.
	// A life is enqueued, parked by the script that fetches or admits it, and finished: other calls wake it, and fetch it with its lock.
	for name, want := range map[string][2]float64{
		"growth-keys": {2.0 / keySlots, 8}, "growth-waiters": {3, 12}, "growth-waiters-fifo": {3, 12},
		"cost-telemetry": {2.0 / keySlots, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := measureOnce(t, "^"+name+"$").Table(name)
			if len(table.Rows) != 3 {
				t.Fatalf("%d rows", len(table.Rows))
			}
			for _, row := range table.Rows {
				for _, column := range []string{"µs", "commands", "client µs", "server µs"} {
					if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || math.IsInf(got[0], 0) {
						t.Errorf("%s: %s is %v", row.Name, column, got)
					}
				}
				if got := row.Values["commands"].Median(); got < want[0] || got > want[1] {
					t.Errorf("%s: %v commands", row.Name, got)
				}
			}
		})
	}
}

func TestNothingIsMeasuredUnasked(t *testing.T) {
	t.Parallel()
	if got := measureOnce(t, "nothing").Tables; len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestSizesShrinkWithTheScale(t *testing.T) {
	t.Parallel()
	all := []int{1, 10, 100, 1000, 10_000}
	for scale, want := range map[int][]int{100: all, 10: all[:4], 2: all[:3], 1: all[:3]} {
		if got := sizes(scale, all...); !slices.Equal(got, want) {
			t.Errorf("at %d%%: %v, want %v", scale, got, want)
		}
	}
	if got := sizes(1, 1, 10); len(got) != 2 {
		t.Errorf("%v has no two sizes to compare", got)
	}
}

func TestNamesOfSizesAreReadable(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{1: "1", 100: "100", 1000: "1 000", 100_000: "100 000", 1_234_567: "1 234 567"} {
		if got := names([]int{size})[0]; got != want {
			t.Errorf("%d is %q, want %q", size, got, want)
		}
	}
}

func TestARoundIsTypicalOfItsSlices(t *testing.T) {
	t.Parallel()
	table := &results.Table{}
	addCosts(table, "10", []measure.Cost{{"µs": 1, "commands": 4}, {"µs": 9, "commands": 4}, {"µs": 2, "commands": 7}})
	if us, commands := table.Of("10", "µs"), table.Of("10", "commands"); us.Median() != 2 || commands.Median() != 5 {
		t.Errorf("got %v µs, %v commands", us, commands)
	}
}
