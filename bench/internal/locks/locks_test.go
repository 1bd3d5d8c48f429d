package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == locks.ChildArgument {
		if err := locks.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(dbtest.Stopping(m).Run())
}

func TestAShortRunFillsItsTables(t *testing.T) {
	t.Parallel()
	// On a busy machine, callers may get no key in so short a slice.
	r := measureLonger(t, `^(C4x8|A128-far)$`, 5)
	stores := measureLonger(t, `^S64$`, 50)
	r.Tables = append(r.Tables, stores.Tables...)
	wide := []string{"floor pool 128", "redislock pool 128", "redsync pool 128"}
	for i, want := range []struct {
		table   string
		rows    []string
		columns []string // with a value of each round in each row
	}{
		{"C4x8", names(locks.Contended), []string{"of ideal", "longest/mean wait"}},
		{"A128-far", slices.Concat(names(locks.OneNode), wide), []string{"p50 µs", "p99 µs", "pairs/s"}},
		{"S64", names(locks.WaitingStores), []string{"p50 µs", "pairs/s"}},
	} {
		if len(r.Tables) <= i || r.Tables[i].Name != want.table {
			t.Fatalf("table %d is not %s: %+v", i, want.table, r.Tables)
		}
		table := r.Tables[i]
		var rows []string
		for _, row := range table.Rows {
			rows = append(rows, row.Name)
			for _, column := range want.columns {
				if values := row.Values[column]; !filled(values) {
					t.Errorf("%s: %s has %v as %s in 2 rounds", table.Name, row.Name, values, column)
				}
			}
			if strings.Contains(row.Note, "OVERLAPPED") || strings.Contains(row.Note, "left out") {
				t.Errorf("%s: %s: %s", table.Name, row.Name, row.Note)
			}
		}
		if !slices.Equal(rows, want.rows) {
			t.Errorf("the table %s has the rows %q", table.Name, rows)
		}
	}
	if versions := stores.Setting.Versions; len(versions) != 2 || !strings.HasPrefix(versions[0], "etcd 3.") ||
		!strings.HasPrefix(versions[1], "PostgreSQL 1") {
		t.Errorf("the versions are %q", versions)
	}
	acquired := r.Table("C4x8").Of(locks.Redislock.Name, "acquisitions")
	if len(acquired) == 0 || slices.Max(acquired) == 0 {
		t.Error("redislock acquires nothing")
	}
	for i, each := range r.Table("C4x8").Of(locks.Redislock.Name, "commands/acquisition") {
		// Two for each acquisition. Holders of the 8 keys may have sent the first one before the window, and send the second
		// one after it.
		if n := acquired[i]; n > 0 && !(math.Round(each*n) >= max(2*n-16, 1)) {
			t.Errorf("redislock sends %v commands for %v acquisitions, want 2 for each", each*n, n)
		}
	}
	// Two round trips of 2 ms each.
	if p50 := r.Table("A128-far").Of(locks.NameFloor, "p50 µs"); !(slices.Min(p50) >= 4000) {
		t.Errorf("a pair far away takes %v µs", p50)
	}
}

// measureLonger measures what the pattern names in two rounds, and again in slices that are four times as long until each row has all values, or
// three times.
func measureLonger(t *testing.T, run string, scale int) *results.Results {
	t.Helper()
	for tries := 1; ; tries++ {
		r, err := measureRun(t, run, scale, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		holes := 0
		for _, table := range r.Tables {
			for _, row := range table.Rows {
				for _, values := range row.Values {
					if !filled(values) {
						holes++
					}
				}
			}
		}
		if holes == 0 || tries == 3 {
			return r
		}
		t.Logf("%s at scale %d: %d rows lack a value", run, scale, holes)
		scale *= 4
	}
}

// filled reports whether there is a value of each of two rounds.
func filled(values []float64) bool {
	return len(values) == 2 && !slices.ContainsFunc(values, math.IsNaN)
}

func TestRowsOfAMissingServerAreLeftOut(t *testing.T) {
	t.Setenv("ETCD", "/no/such/etcd")
	var said []string
	r, err := measureRun(t, `^S64$`, 5, 1, func(_ func(), text string) { said = append(said, text) })
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range locks.WaitingStores {
		row, missing := r.Table("S64").Row(kind.Name), kind.Store == locks.OnEtcd
		if missing != strings.Contains(row.Note, "left out") || missing != (len(row.Values) == 0) {
			t.Errorf("%s: %+v", kind.Name, row)
		}
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "etcdlock: left out") || !strings.Contains(text, "test-deps.sh") {
		t.Errorf("it says:\n%s", text)
	}
}

func TestNothingIsMeasuredUnasked(t *testing.T) {
	t.Parallel()
	if r, err := measureRun(t, `^nothing$`, 5, 1, nil); err != nil || len(r.Tables) > 0 {
		t.Errorf("got %d tables, %v", len(r.Tables), err)
	}
}

func TestARunThatIsBrokenOffKeepsItsFigures(t *testing.T) {
	t.Parallel()
	r, err := measureRun(t, `^(A1|A16)$`, 5, 1, func(stop func(), text string) {
		if strings.HasPrefix(text, "A16") {
			stop()
		}
	})
	if err == nil || len(r.Tables) == 0 {
		t.Fatalf("got %+v, %v", r.Tables, err)
	}
	for _, kind := range locks.OneNode { // and what is done has a cost
		for _, column := range []string{"allocations", "bytes", "client µs", "server µs"} {
			got, done := r.Tables[0].Of(kind.Name, column), r.Tables[0].Of(kind.Name, "pairs/s")
			if kind.Store == locks.OnRedis && (len(got) != 1 || len(done) != 1 || !(got[0] > 0) && done[0] > 0) {
				t.Errorf("%s: %s is %v, with %v pairs/s", kind.Name, column, got, done)
			}
		}
	}
}

// measureRun measures what the pattern names. said is told the progress, and how to stop.
func measureRun(
	t *testing.T, run string, scale, rounds int, said func(stop func(), text string),
) (*results.Results, error) {
	t.Helper()
	_, missing := exec.LookPath("redis-server")
	_, noEtcd := exec.LookPath("etcd")
	if err := errors.Join(missing, noEtcd, dbtest.FindPostgres()); err != nil {
		t.Fatal("needs what make test installs: ", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := &results.Results{}
	env := &measure.Env{Dir: t.TempDir(), Rounds: rounds, Scale: scale, Run: regexp.MustCompile(run), Results: r}
	env.Say = func(format string, args ...any) {
		if said != nil {
			said(stop, fmt.Sprintf(format, args...))
		}
	}
	return r, locks.Measure(ctx, env)
}

func names(kinds []locks.Kind) (names []string) {
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	return names
}
