package targets

import (
	"fmt"
	"slices"
)

// All are the targets, in the order of the report.
var All = slices.Concat(
	[]Target{
		{"A1", "p50 against the floor", atMost(1.15), versus("p50 µs", "floor")},
		{"A128", "pairs/s against redislock", atLeast(3.5), versus("pairs/s", "redislock")},
		{"A128", "pairs/s against rueidislock", atLeast(2), versus("pairs/s", "rueidislock")},
		{"B1", "p50 against redsync", atMost(0.8), versus("p50 µs", "redsync")},
		{"B128", "pairs/s against redsync", atLeast(6), versus("pairs/s", "redsync")},
		{"B128", "pairs/s against rueidislock", atLeast(3), versus("pairs/s", "rueidislock")},
		{"A1-far", "p50 against the floor", atMost(1.15), versus("p50 µs", "floor")},
	},
	contended("C1", 0.95, single), contended("C4", 0.90, single),
	contended("C1x8", 0, single), contended("C4x8", 0, single), contended("C1-five", 0, several),
	outage("Dstop"), outage("Dkill"),
	[]Target{
		{"S1", "p50 of etcdlock against etcd's mutex", atMost(1.25), ratio("p50 µs", "etcdlock", "etcd")},
		{"S1", "p50 of pglock against a row by hand", atMost(2.5), ratio("p50 µs", "pglock", "row by hand")},
		{"S64", "hand-offs of etcdlock against etcd's mutex", atLeast(2), ratio("pairs/s", "etcdlock", "etcd")},
		{"S64", "hand-offs of pglock against advisory locks", atLeast(2), ratio("pairs/s", "pglock", "advisory lock")},
	},

	stock("stock", map[string]float64{recorded: 1.8, plain: 1.9}, map[string]float64{recorded: 0.95, plain: 1.1}),
	[]Target{
		{"stock", "tasks/s with keys against sleep-retry", atLeast(2), ratio("tasks/s", recorded, "sleep-retry")},
		{"stock", "tasks/s with keys against redsync", atLeast(2), ratio("tasks/s", recorded, "redsync")},
		{"stock", "client µs with keys against one stock server", atMost(0.6), ratio("client µs", recorded, "bare x 1")},
		{"stock", "server µs with keys against one stock server", atMost(1), ratio("server µs", recorded, "bare x 1")},
	},
	stock("stock-far", map[string]float64{recorded: 8}, map[string]float64{recorded: 1.5}),

	tasks("K1", 0.92), tasks("K4", 0.92), tasks("K20", 0.92), tasks("orders", 0.9), tasks("sellers", 0),
	[]Target{
		ahead("zipf-0.8", "of ideal"), ahead("zipf-1.0", "of ideal"),
		ahead("zipf-1.2", "of ideal"), ahead("zipf-1.4", "of ideal"),
		{"hotkey", "tasks/s of other keys beside a hot key against without it", atLeast(0.9), share("others/s", "alone/s")},
		ahead("hotkey", "all/s"),
	},
	wake("10ms, the same worker", "p50 ms", 10), wake("50ms, the same worker", "p95 ms", 60),
	wake("50ms, the same worker, attached", "p50 ms", 3),
	wake("10ms, another worker", "p50 ms", 10), wake("50ms, another worker", "p95 ms", 60),
	wake("50ms, another worker, attached", "p50 ms", 3),
	against("wake-all", "p50 ms", "p50", atMost(1),
		"sleep-retry", "redsync", "semaphore", "asynq retry, IsFailure=false", "asynq retry"),

	steady("growth-keys", "from 10 to 100 000 keys"),
	steady("growth-waiters", "from 1 to 10 000 waiters"),
	steady("growth-waiters-fifo", "from 1 to 10 000 waiters"),
	[]Target{
		{"cost-telemetry", "commands with reports and metrics against neither", atMost(1.01), ratio("commands", everything, "neither")},
		{"cost-telemetry", "µs with reports and metrics against neither", atMost(1.02), ratio("µs", everything, "neither")},
		{"cost-memory", "Redis keys of an idle key after FenceTTL", atMost(0), figure(forgotten, "Redis keys each")},
		{
			"cost-memory", "bytes of an idle key after FenceTTL, beside what the server keeps for itself", atMost(5),
			figure(forgotten, "bytes each"),
		},
	},
)

// The lock libraries that are compared on one server and on several.
var (
	single  = []string{"redislock", "redsync", "rueidislock", "etcd"}
	several = []string{"redsync", "redsync failfast", "rueidislock", "etcd"}
)

// forgotten is the row of a key that nothing is left of.
const forgotten = "released key, after FenceTTL"

// everything is the row of tasks with all telemetry.
const everything = "reports and Prometheus"

// The rows of attached servers whose tasks have recorded keys, or none.
const (
	recorded = "railtoken, keys recorded"
	plain    = "attached, no keys"
)

// stock demands throughputs of some rows against one stock server of asynq, and against the best number of them in one
// process.
func stock(table string, one, best map[string]float64) []Target {
	var all []Target
	for _, row := range []string{recorded, plain} {
		if least := one[row]; least > 0 {
			all = append(all, Target{table, row + ": tasks/s against one stock server", atLeast(least), ratio("tasks/s", row, "bare x 1")})
		}
		if least := best[row]; least > 0 {
			all = append(all, Target{
				table, row + ": tasks/s against the best of several, ", atLeast(least),
				overBest("tasks/s", row, []string{"bare x 2", "bare x 4", "bare x 8"}),
			})
		}
	}
	return all
}

// contended demands that no library is ahead, and a share of the ideal when it is not 0.
func contended(table string, least float64, peers []string) []Target {
	var all []Target
	if least > 0 {
		all = []Target{
			{table, "share of the ideal", atLeast(least), figure(ours, "of ideal")},
			{table, "commands sent per acquisition", atMost(1), figure(ours, "commands/acquisition")},
			{table, "longest wait against the mean", atMost(3), figure(ours, "longest wait ÷ mean")},
		}
	}
	return append(all, against(table, "of ideal", "share of the ideal", atLeast(1), peers...)...)
}

// outage demands that a broken server slows us down little, and no library less.
func outage(table string) []Target {
	all := []Target{
		{table, "p50 in the outage against healthy", atMost(1.3), share("outage p50 µs", "healthy p50 µs")},
		{table, "p99 in the outage against healthy", atMost(4), share("outage p99 µs", "healthy p99 µs")},
	}
	for _, peer := range several {
		all = append(all,
			Target{table, "p50 in the outage against " + peer, atMost(1), versus("outage p50 µs", peer)},
			Target{table, "p50 in the outage to healthy, against " + peer, atMost(1), slowdown(peer)},
			Target{table, "pairs/s in the outage against " + peer, atLeast(1), versus("outage pairs/s", peer)})
	}
	return all
}

// tasks demands a share of bare asynq's throughput when it is not 0, few commands and runs, and that no pattern written
// by hand is ahead.
func tasks(table string, least float64) []Target {
	var all []Target
	if least > 0 {
		all = []Target{{table, "tasks/s against bare asynq", atLeast(least), versus("tasks/s", "bare")}}
	}
	return append(all,
		Target{table, "commands for each conflict", atMost(6), perConflict},
		Target{table, "share of tasks that a worker runs at most twice", atLeast(0.99), figure(ours, "≤2 runs")},
		ahead(table, "tasks/s"))
}

func wake(row, column string, most float64) []Target {
	return []Target{{"wake", "wake-up, " + row + ": " + column, atMost(most), figure(row, column)}}
}

// ahead demands that no pattern written by hand is quicker that finished in each round.
func ahead(table, column string) Target {
	return Target{table, "tasks/s against the quickest pattern by hand, ", atLeast(1), quickest(column)}
}

// against compares us with each peer.
func against(table, column, what string, bound Bound, peers ...string) []Target {
	var all []Target
	for _, peer := range peers {
		all = append(all, Target{table, what + " against " + peer, bound, versus(column, peer)})
	}
	return all
}

// steady demands that the dearest size costs at most a fifth more than the cheapest.
func steady(table, sizes string) []Target {
	var all []Target
	for _, column := range []string{"µs", "commands", "client µs", "server µs"} {
		all = append(all, Target{
			table, fmt.Sprintf("%s %s: the most expensive against the cheapest", column, sizes), atMost(1.2),
			growth(column),
		})
	}
	return all
}
