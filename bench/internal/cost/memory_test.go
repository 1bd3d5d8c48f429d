package cost

import (
	"testing"

	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestMemoryIsThatOfKeysAndParkedTasks(t *testing.T) {
	t.Parallel()
	table := measureOnce(t, "^cost-memory$").Table("cost-memory")
	t.Run("an idle key leaves nothing after its FenceTTL", func(t *testing.T) { leavesNothing(t, table) })
	t.Run("a parked task takes more than asynq's own", func(t *testing.T) { takesMore(t, table) })
}

func leavesNothing(t *testing.T, table *results.Table) {
	t.Helper()
	for name, want := range map[string]float64{
		"held key": 2, "released key, until FenceTTL": 1, "released key, after FenceTTL": 0,
	} {
		if got := table.Of(name, "Redis keys each"); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v Redis keys each, want %v", name, got, want)
		}
	}
}

func takesMore(t *testing.T, table *results.Table) {
	t.Helper()
	bare := table.Of("task in asynq's retry set", "bytes each").Median()
	for _, name := range []string{"parked task", "parked task, FIFO"} {
		got, beyond := table.Of(name, "bytes each").Median(), table.Of(name+", beyond asynq's own", "bytes each").Median()
		if !(bare > 0) || !(got > bare) || got-bare != beyond {
			t.Errorf("%s: %v bytes, bare asynq's %v, beyond %v", name, got, bare, beyond)
		}
	}
}
