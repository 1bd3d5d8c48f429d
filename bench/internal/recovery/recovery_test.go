package recovery

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/child"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildArgument {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func environment(t *testing.T) *measure.Env {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("needs redis-server, which make test installs: ", err)
	}
	return &measure.Env{Dir: t.TempDir(), Rounds: 1, Scale: 2, Say: t.Logf, Results: &results.Results{}}
}

// filled fails the test unless each row has a positive figure in each of the columns.
func filled(t *testing.T, table *results.Table, columns ...string) {
	t.Helper()
	for _, row := range table.Rows {
		for _, column := range columns {
			if got := row.Values[column]; len(got) != 1 || math.IsNaN(got[0]) || got[0] <= 0 {
				t.Errorf("%s: %s is %v", row.Name, column, got)
			}
		}
	}
}

// comesBack is a share of the rate that tells tasks that run again from none, however busy the machine is.
const comesBack = 0.01

func TestTasksRunAgainAfterEachOutage(t *testing.T) {
	t.Parallel()
	testserver.LeaveToLong(t)
	for _, fault := range all[:2] { // a failover is measured by make bench alone: it takes as long as the sentinels want
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			env, of := environment(t), contestants
			if err := outages(t.Context(), env, []outage{fault}, of, comesBack); err != nil {
				t.Fatal(err)
			}
			table := env.Results.Table("recovery")
			filled(t, table, fault.name+": down s", fault.name+": first s", fault.name+": normal s")
			if len(table.Rows) != len(of) {
				t.Errorf("%d rows", len(table.Rows))
			}
			for _, row := range table.Rows {
				down, first := row.Values[fault.name+": down s"].Median(), row.Values[fault.name+": first s"].Median()
				if usual := row.Values[fault.name+": normal s"].Median(); first < down || usual < first {
					t.Errorf("%s: down for %v s, the first after %v s, normal after %v s", row.Name, down, first, usual)
				}
			}
		})
	}
}

// The worker ends in order here, and hands its tasks back: recovery takes longer than a test may.
func TestTheTasksOfAWorkerThatHasEndedRunOnAnother(t *testing.T) {
	t.Parallel()
	env, table := environment(t), &results.Table{}
	if err := (death{0, (*child.Child).End}).round(t.Context(), env, table); err != nil {
		t.Fatal(err)
	}
	filled(t, table, "first s", "all s")
	if len(table.Rows) != len(contestants) {
		t.Errorf("%d rows", len(table.Rows))
	}
}

func TestDeathsAreLeftOutOfALookAtAPart(t *testing.T) {
	t.Parallel()
	env := environment(t)
	if err := deaths(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	table := env.Results.Table("recovery-worker")
	for _, row := range table.Rows {
		if !strings.HasPrefix(row.Note, "left out") || len(row.Values) > 0 {
			t.Errorf("%s: %q, %v", row.Name, row.Note, row.Values)
		}
	}
	if len(table.Rows) != len(contestants) {
		t.Errorf("%d rows", len(table.Rows))
	}
}

func TestARateThatStaysLowIsNoFigure(t *testing.T) {
	t.Parallel()
	table := &results.Table{}
	all[0].addTo(table, "x", origin, origin.Add(time.Second), comeback{})
	all[0].addTo(table, "x", origin, origin.Add(time.Second), comeback{at(2000), at(3000)})
	for column, want := range map[string]float64{"down s": 1, "first s": 2, "normal s": 3} {
		if got := table.Of("x", all[0].name+": "+column); len(got) != 2 || got[1] != want {
			t.Errorf("%s is %v", column, got)
		}
	}
	if got := table.Of("x", all[0].name+": normal s"); !math.IsNaN(got[0]) || !strings.Contains(table.Row("x").Note, "not normal") {
		t.Errorf("got %v, with the note %q", got, table.Row("x").Note)
	}
}

func TestAnUnknownWorkerIsRefused(t *testing.T) {
	t.Parallel()
	if err := Serve(strings.NewReader(`{"Name": "nobody"}`), os.Stderr); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("got %v", err)
	}
}
