package simulate_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/verify/simulate"
)

var (
	acquisitions = flag.Int("acquisitions", 8_000, "how many acquisitions of each scenario are simulated")
	seed         = flag.Uint64("seed", 1, "the seed of each scenario")
	table        = flag.Bool("table", false, "print what happened in each scenario")
)

// known keeps the results of runOf, by what it was asked for.
var known sync.Map

// runOf simulates a scenario, once for several tests: a run is a function of its seed.
func runOf(name string, seed uint64, acquisitions int) simulate.Result {
	run, _ := known.LoadOrStore(fmt.Sprint(name, seed, acquisitions), sync.OnceValue(func() simulate.Result {
		return simulate.Run(world(name), seed, acquisitions, false)
	}))
	return run.(func() simulate.Result)()
}

func TestTokensAreUniqueAndInOrder(t *testing.T) {
	t.Parallel()
	rows := make([]string, len(simulate.Scenarios()))
	t.Cleanup(func() { // when all scenarios are through
		if *table {
			printTable(t, rows)
		}
	})
	for i, sc := range simulate.Scenarios() {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			r := runOf(sc.Name, *seed, *acquisitions)
			rows[i] = fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t", sc.Name, r.Acquisitions,
				r.Committed,
				r.OneRound, r.ExtraRound, r.Tokens, r.Conflicts, r.Unreachable, r.Lost, r.Crashes+r.Deaths, r.Duplicates,
				r.OutOfOrder, r.Overlaps, time.Since(start).Seconds())
			if r.Violations() > 0 {
				t.Errorf("%d duplicates, %d out of order, %d overlaps, %d orphans; the first: %s\n"+
					"again: go test ./internal/verify/simulate -run '%s' "+
					"-seed %d -acquisitions %d", r.Duplicates, r.OutOfOrder, r.Overlaps, r.Orphans, r.First, t.Name(), *seed,
					*acquisitions)
			}
			// A run in which little happens shows nothing.
			if r.Acquisitions != *acquisitions || r.Committed < r.Acquisitions/5 || r.Conflicts < r.Acquisitions/50 {
				t.Errorf("%d acquisitions, %d committed, %d conflicts: not worth the name of a run", r.Acquisitions, r.Committed,
					r.Conflicts)
			}
		})
	}
}

// printTable prints what happened in each scenario.
func printTable(t *testing.T, rows []string) {
	t.Helper()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w,
		"scenario\tacquisitions\tcommitted\tin one round\tin more\ttokens\tconflicts\tno quorum\tlost\tcrashes\t"+
			"duplicates\tout of order\toverlaps\tseconds\t")
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestScenariosDoWhatTheySay(t *testing.T) {
	t.Parallel()
	const n = 8_000
	for _, sc := range simulate.Scenarios() {
		r := runOf(sc.Name, 1, n)
		for what, got := range map[string]struct{ expected, happened bool }{
			"nodes crash":        {sc.NodeCrashEvery > 0, r.Crashes > 0},
			"clients crash":      {sc.ClientCrashEvery > 0, r.Deaths > 0},
			"the guard refuses":  {sc.NodeCrashEvery > 0 || sc.Name == "everything", r.Refused > 0},
			"commits need more":  {sc.Skew > 0, r.ExtraRound > n/1000},
			"leases are lost":    {sc.PauseEvery > 0, r.Lost > 0},
			"clocks are excused": {sc.NodeJump > 0, r.Excused > 0},
			"leases are renewed": {true, r.Extensions > 0},
			"acquires are late":  {sc.Longest > time.Second && sc.Tail > 0.01, r.TooLate > 0},
			"locks are retaken":  {sc.NodeCrashEvery > 0, r.Retaken > 0},
			"leases are handed":  {true, r.Tokens > r.Committed},
		} {
			if got.expected && !got.happened {
				t.Errorf("%s: it does not happen that %s", sc.Name, what)
			}
		}
		if r.Excused > r.Committed/100 {
			t.Errorf("%s: %d of %d leases are excused", sc.Name, r.Excused, r.Committed)
		}
	}
}

func TestRunIsAFunctionOfItsSeed(t *testing.T) {
	t.Parallel()
	sc := simulate.Scenarios()[9]
	a, b, c := simulate.Run(sc, 7, 5000, false), simulate.Run(sc, 7, 5000, false), simulate.Run(sc, 8, 5000, false)
	if a != b {
		t.Errorf("%+v\n%+v", a, b)
	}
	if a == c {
		t.Error("another seed, but the same run")
	}
}

func TestGuardOfProductionIsUsed(t *testing.T) {
	t.Parallel()
	asked := 0
	sc := world("full loss", func(s *simulate.Scenario) {
		s.Guard = func(
			f restartguard.Facts, l restartguard.Limits, k restartguard.Known, others []string, now time.Time,
		) (restartguard.Known, time.Time) {
			asked++
			return simulate.Production(f, l, k, others, now)
		}
	})
	simulate.Run(sc, 1, 5000, false)
	if asked < sc.Clients*sc.Nodes {
		t.Errorf("asked %d times", asked)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, sc := range simulate.Scenarios() {
		b.Run(sc.Name, func(b *testing.B) {
			simulate.Run(sc, 1, b.N, false)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acquisitions/s")
		})
	}
}
