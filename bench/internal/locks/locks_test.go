package locks_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/locks"
	"github.com/railtoken/railtoken/bench/internal/report"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == locks.ChildArgument {
		if err := locks.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAShortRunShowsItsTables(t *testing.T) {
	t.Parallel()
	sections, err := measure(t, `^(A1|C4x8|A128-far)$`, 2)
	if err != nil {
		t.Fatal(err)
	}
	wide := []string{"floor pool 128", "redislock pool 128", "redsync pool 128"}
	one := names(contestant.OneNode)
	for i, want := range []struct {
		section, table string
		rows           []string
		columns        []string // with a value of each round in each row
		targets        int
	}{
		{"locks-one", "A1", one, []string{"p50 µs", "p99 µs", "pairs/s"}, 1},
		{"locks-contended", "C4x8", names(contestant.Contended), []string{"of ideal", "mean wait ms"}, 4},
		{"locks-far", "A128-far", slices.Concat(one, wide), []string{"p50 µs", "pairs/s"}, 0},
	} {
		if len(sections) <= i || sections[i].Name != want.section || len(sections[i].Tables) != 1 {
			t.Fatalf("section %d is not %s with one table", i, want.section)
		}
		table := sections[i].Tables[0]
		var rows []string
		for _, row := range table.Rows {
			rows = append(rows, row.Name)
			for _, column := range want.columns {
				if got := slices.DeleteFunc(slices.Clone(row.Values[column]), math.IsNaN); len(got) != 2 {
					t.Errorf("%s: %s has %v as %s in 2 rounds", table.Name, row.Name, row.Values[column], column)
				}
			}
			if strings.Contains(row.Note, "OVERLAPPED") {
				t.Errorf("%s: %s: %s", table.Name, row.Name, row.Note)
			}
		}
		if table.Name != want.table || !slices.Equal(rows, want.rows) || len(table.Targets) != want.targets {
			t.Errorf("the table %s has the rows %q and %d targets", table.Name, rows, len(table.Targets))
		}
		if charts := sections[i].Charts; len(charts) != 1 || len(charts[0].Groups) != 1 || len(charts[0].Groups[0].Bars) != len(rows) {
			t.Errorf("%s has the charts %+v", want.section, charts)
		}
		if !strings.Contains(sections[i].Text, "etcd 3.") {
			t.Errorf("%s does not tell the version of etcd:\n%s", want.section, sections[i].Text)
		}
	}
	commands := sections[1].Tables[0].Row(contestant.Redislock.Name).Values["commands/acquisition"]
	if len(commands) != 2 || !(commands[0] >= 2) {
		t.Errorf("redislock sends %v commands for an acquisition, want 2 or more", commands)
	}
	// Two round trips of 2 ms each.
	if p50 := sections[2].Tables[0].Row(contestant.NameRaw).Values["p50 µs"]; !(slices.Min(p50) >= 4000) {
		t.Errorf("a pair far away takes %v µs", p50)
	}
}

func TestWhatNobodyAsksForIsNotMeasured(t *testing.T) {
	t.Parallel()
	if sections, err := measure(t, `^nothing$`, 1); err != nil || len(sections) > 0 {
		t.Errorf("got %d sections, %v", len(sections), err)
	}
}

func TestARunThatIsBrokenOffReturnsWhatItHas(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	env := environment(t, `^(A1|A16)$`, 1)
	env.Say = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "A16") {
			stop()
		}
	}
	sections, err := locks.Measure(ctx, env)
	if err == nil || len(sections) != 1 || sections[0].Tables[0].Name != "A1" {
		t.Errorf("got %d sections, %v", len(sections), err)
	}
}

func measure(t *testing.T, run string, reps int) ([]*report.Section, error) {
	t.Helper()
	return locks.Measure(t.Context(), environment(t, run, reps))
}

func environment(t *testing.T, run string, reps int) report.Env {
	t.Helper()
	for _, program := range []string{"redis-server", "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatal("needs what make test installs: ", err)
		}
	}
	return report.Env{Dir: t.TempDir(), Reps: reps, Scale: 5, Run: regexp.MustCompile(run), Say: t.Logf}
}

func names(kinds []contestant.Kind) (names []string) {
	for _, kind := range kinds {
		names = append(names, kind.Name)
	}
	return names
}
