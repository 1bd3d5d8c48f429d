package report

import (
	"fmt"
	"strings"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// comparison is a figure by which contestants of a table are compared.
type comparison struct {
	tables []string
	column string
	more   bool // more is better
}

var comparisons = []comparison{
	{[]string{"K1", "K4", "K20", "orders", "sellers", "noop"}, "tasks/s", true},
	{[]string{"zipf-0.8", "zipf-1.0", "zipf-1.2", "zipf-1.4"}, "of ideal", true},
	{[]string{"hotkey"}, "others/s", true},
	{[]string{"wake-all"}, "p50 ms", false},
	{[]string{
		"A1", "A16", "A128", "A1024", "B1", "B16", "B128", "B1024", "A1-far", "A128-far", "B1-far", "B128-far",
	}, "pairs/s", true},
	{[]string{"C1", "C4", "C1x8", "C4x8", "C1-five"}, "of ideal", true},
	{[]string{"Dstop", "Dkill"}, "outage p50 µs", false},
	{[]string{"A1", "B1"}, "allocations", false},
	{[]string{"A128", "B128"}, "client µs", false},
	{[]string{"A128", "B128"}, "server µs", false},
}

// bare is the row without a lock.
const bare = "bare"

// behind lists each figure in which others are ahead of railtoken with its defaults, by more than 1 %.
func behind(r *results.Results) string {
	var b strings.Builder
	writeRow(&b, "Scenario", "Figure", "railtoken", "Ahead of it, with railtoken ÷ theirs")
	writeRow(&b, "---", "---", "---:", "---")
	for _, c := range comparisons {
		for _, name := range c.tables {
			t := r.Table(name)
			if t == nil {
				continue
			}
			var ahead []string
			for _, row := range t.Rows {
				ratio := t.Against(c.column, ours, row.Name).Spread()
				isAhead := c.more && ratio.Median < 0.99 || !c.more && ratio.Median > 1.01
				if isAhead && !strings.HasPrefix(row.Name, ours) && row.Name != bare {
					text := newColumn("", name, c.column).cell(r, row.Name)
					ahead = append(ahead, fmt.Sprintf("%s %s: %s", row.Name, text, WithQuartiles(ratio)))
				}
			}
			if len(ahead) > 0 {
				writeRow(&b, name, c.column, shown(t.Of(ours, c.column)), strings.Join(ahead, "; "))
			}
		}
	}
	return b.String()
}
