package locks

import (
	"context"
	"fmt"
	"slices"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/report"
)

// part is a section to be.
type part struct {
	name, title, text string
	scenarios         []scenario
	charts            func(*report.Section) []*report.Chart
}

// scenario is one table.
type scenario struct {
	name, title string
	five        bool // on servers that are to be old
	measure     func(ctx context.Context, b *bench, t *report.Table) error
	targets     func(t *report.Table)
}

// parts in the order in which they run: the five servers grow old while the single one is measured.
var parts = []part{
	{"locks-one", "Locks on one server, keys that nobody else wants", oneText, []scenario{
		alone(1, 1, func(t *report.Table) {
			t.AtMost(1.15, "p50 against the floor", t.Against(p50, contestant.Railtoken, contestant.NameFloor))
		}),
		alone(1, 16, nil),
		alone(1, 128, func(t *report.Table) {
			t.AtLeast(3.5, "pairs/s against redislock", t.Against(rate, contestant.Railtoken, contestant.NameRedislock))
			t.AtLeast(2, "pairs/s against rueidislock", t.Against(rate, contestant.Railtoken, contestant.NameRueidislock))
		}),
		alone(1, 1024, nil),
	}, callersChart("locks-one", "One server")},
	{"locks-five", "Locks on five servers, keys that nobody else wants", fiveText, []scenario{
		alone(5, 1, func(t *report.Table) {
			t.AtMost(0.8, "p50 against redsync", t.Against(p50, contestant.Railtoken, contestant.NameRedsync))
		}),
		alone(5, 16, nil),
		alone(5, 128, func(t *report.Table) {
			t.AtLeast(6, "pairs/s against redsync", t.Against(rate, contestant.Railtoken, contestant.NameRedsync))
			t.AtLeast(3, "pairs/s against rueidislock", t.Against(rate, contestant.Railtoken, contestant.NameRueidislock))
		}),
		alone(5, 1024, nil),
	}, callersChart("locks-five", "Five servers")},
	{"locks-contended", "Locks that many want", contendedText, []scenario{
		contended("C1", contention{place{servers: 1}, 1, 1}, 0.95),
		contended("C4", contention{place{servers: 1}, 4, 1}, 0.90),
		contended("C1x8", contention{place{servers: 1}, 1, 8}, 0),
		contended("C4x8", contention{place{servers: 1}, 4, 8}, 0),
		contended("C1-five", contention{place{servers: 5}, 1, 1}, 0),
	}, contendedCharts},
	{"locks-outage", "Locks on five servers of which one is broken", outageText, []scenario{
		{"Dstop", "five servers, 1 caller, one server stopped by SIGSTOP", true, outages(paused), outageTargets},
		{"Dkill", "five servers, 1 caller, one server killed", true, outages(killed), outageTargets},
	}, outageCharts},
	{"locks-far", "Locks with 2 ms between the callers and the servers", farText, []scenario{
		away(1, 1, func(t *report.Table) {
			t.AtMost(1.15, "p50 against the floor", t.Against(p50, contestant.Railtoken, contestant.NameFloor))
		}),
		away(1, 128, nil),
		away(5, 1, nil),
		away(5, 128, nil),
	}, farCharts},
}

func series(servers int) (letter, many string, kinds []contestant.Kind) {
	if servers == 1 {
		return "A", "one server", contestant.OneNode
	}
	return "B", "five servers", contestant.FiveNodes
}

func callersText(callers int) string {
	if callers == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", callers)
}

func alone(servers, callers int, targets func(*report.Table)) scenario {
	letter, many, kinds := series(servers)
	return scenario{
		fmt.Sprint(letter, callers), many + ", " + callersText(callers) + ", keys that nobody else wants", servers > 1,
		uncontended(place{servers: servers}, kinds, callers), targets,
	}
}

func away(servers, callers int, targets func(*report.Table)) scenario {
	letter, many, kinds := series(servers)
	if callers > 1 {
		kinds = slices.Concat(kinds, contestant.Pooled(kinds, callers))
	}
	return scenario{
		fmt.Sprint(letter, callers, "-far"), many + " 2 ms away, " + callersText(callers) + ", keys that nobody else wants", servers > 1,
		uncontended(place{servers: servers, far: true}, kinds, callers), targets,
	}
}

// contended has targets of its own when the share of the ideal has one. Nobody may be ahead of us anyway.
func contended(name string, c contention, share float64) scenario {
	_, many, _ := series(c.at.servers)
	keys, processes := "one key", "one process"
	if c.keys > 1 {
		keys = fmt.Sprintf("%d keys", c.keys)
	}
	if c.processes > 1 {
		processes = fmt.Sprintf("%d processes", c.processes)
	}
	title := fmt.Sprintf("%s, %d callers in %s on %s, each held for 1 ms", many, callersAll, processes, keys)
	return scenario{name, title, c.five(), c.measure, func(t *report.Table) {
		if share > 0 {
			ours := t.Row(contestant.Railtoken)
			t.AtLeast(share, "share of the serial ideal", ours.Values[efficiency])
			t.AtMost(1, "commands sent per acquisition", ours.Values[commands])
			t.AtMost(3, "longest wait against the mean", ours.Values[unfairness])
		}
		for _, peer := range peers(t) {
			t.AtLeast(1, "share of the ideal against "+peer, versus(t, efficiency, peer))
		}
	}}
}

func outageTargets(t *report.Table) {
	ours := t.Row(contestant.Railtoken)
	t.AtMost(1.3, "p50 against healthy", ours.Values[slowdown])
	t.AtMost(4, "p99 against healthy", ours.Values[tail])
	for _, peer := range peers(t) {
		t.AtMost(1, "p50 in the outage against "+peer, t.Against(outage+p50, contestant.Railtoken, peer))
		t.AtMost(1, "p50 in the outage to healthy, against "+peer, t.Against(slowdown, contestant.Railtoken, peer))
		t.AtLeast(1, "pairs/s in the outage against "+peer, versus(t, outage+rate, peer))
	}
}

// versus returns our ratios to a peer, and notes the rounds in which there is none, as the peer got nothing done.
func versus(t *report.Table, column, peer string) []float64 {
	ratios := t.Against(column, contestant.Railtoken, peer)
	if nothing, all := len(t.Row(peer).Values[column])-len(ratios), len(t.Row(peer).Values[column]); nothing > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%s got nothing done in %d of %d rounds, which the target against it leaves out.", peer, nothing, all))
	}
	return ratios
}

// peers are the rows of others.
func peers(t *report.Table) (names []string) {
	for _, row := range t.Rows {
		if row.Name != contestant.Railtoken {
			names = append(names, row.Name)
		}
	}
	return names
}
