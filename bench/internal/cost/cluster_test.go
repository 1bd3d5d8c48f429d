package cost

import (
	"math"
	"testing"
)

func TestEveryContestantDoesItsTasksOnACluster(t *testing.T) {
	t.Parallel()
	r := measureOnce(t, "^stock-cluster(-busy)?$")
	for _, name := range []string{"stock-cluster", "stock-cluster-busy"} {
		table := r.Table(name)
		if table == nil || len(table.Rows) != len(onClusterOf) {
			t.Fatalf("%s: %+v", name, table)
		}
		for _, row := range table.Rows {
			for _, column := range []string{"tasks/s", "client µs", "server µs"} {
				if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || got[0] <= 0 {
					t.Errorf("%s, %s: %s is %v", name, row.Name, column, got)
				}
			}
		}
	}
}
