package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

// Redlock is left out: a test does not wait until its servers are old enough.
func TestLocksOnOtherServersAreMeasured(t *testing.T) {
	t.Parallel()
	r := &results.Results{Rounds: 1}
	env := &measure.Env{Dir: t.TempDir(), Rounds: 1, Scale: 1, Say: t.Logf, Results: r}
	here := slices.DeleteFunc(slices.Clone(places), func(p elsewhere) bool { return p.name == "Redlock on five" })
	if err := apartIn(t.Context(), env, here); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, row := range r.Table("stock-apart").Rows {
		if row.Note != "" || len(row.Values) == 0 { // its server is not installed, or it is Redlock's
			continue
		}
		rows++
		figures := []string{"tasks/s", alone}
		if row.Name == "bare x 1" { // it has no locks
			figures = figures[:1]
		}
		for _, figure := range figures {
			if got := row.Values[figure]; len(got) != 1 || math.IsNaN(got[0]) || got[0] <= 0 {
				t.Errorf("%s: %s is %v", row.Name, figure, got)
			}
		}
	}
	if rows < 3 {
		t.Errorf("%d rows have figures", rows)
	}
}
