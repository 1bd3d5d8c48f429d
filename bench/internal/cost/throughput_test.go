package cost

import (
	"math"
	"testing"
)

func TestEveryContestantDoesItsTasks(t *testing.T) {
	t.Parallel()
	r := measureOnce(t, "^stock(-far)?$")
	for _, name := range []string{"stock", "stock-far"} {
		table := r.Table(name)
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
	if far := r.Table("stock-far").Of("bare x 1", "tasks/s").Median(); far > most {
		t.Errorf("%v tasks/s with a network between, want %v at most", far, most)
	}
}
