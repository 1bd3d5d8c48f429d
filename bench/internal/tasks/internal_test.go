package tasks

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestEveryScenarioThatATargetNamesIsThere(t *testing.T) {
	t.Parallel()
	all, err := contests(&measure.Env{Scale: 1})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
		if c.Title == "" || c.Group == "" || len(c.Rows) < 3 {
			t.Errorf("%+v", c)
		}
	}
	want := []string{
		"K1", "K4", "K20", "K20-lanes", "orders", "sellers", "K1-busy", "K20-busy", "orders-busy", "K1-computes", "K20-computes", "orders-computes",
		"hotkey", "hot-ahead", "wake-all", "wake-lanes", "wake", "open-loop", "noisy-tenant",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestARowSaysWhatMustNotBe(t *testing.T) {
	t.Parallel()
	s := Repeat("", 1, 100, 5*time.Millisecond, 1)
	table := &results.Table{Name: "X"}
	result := func(took time.Duration, done int) Result {
		return Result{Tasks: 100, Done: done, Finished: done == 100, Took: took, Runs: []int{1, 1, 3}, Commands: math.NaN()}
	}
	for _, took := range []time.Duration{time.Second, 2 * time.Second} {
		result(took, 100).addTo(table, Railtoken, s, Result{})
	}
	quick := table.Row(Railtoken.Name)
	if got := quick.Values["of ideal"]; len(got) != 2 || got[0] != 0.5 || got[1] != 0.25 || quick.Note != "" {
		t.Errorf("of ideal: %v, with the note %q", got, quick.Note)
	}
	if got := quick.Values["finished"]; len(got) != 2 || got[0] != 1 || quick.Values["commands/conflict"] != nil {
		t.Errorf("got %v", quick.Values)
	}
	bad := result(4*time.Second, 50)
	bad.Overlaps, bad.Again, bad.Err = 3, 1, "a fault"
	bad.addTo(table, SleepRetry, s, Result{})
	bad.addTo(table, SleepRetry, s, Result{})
	row := table.Row(SleepRetry.Name)
	for _, part := range []string{"OVERLAPPED 3 times", "1 tasks were done TWICE", "a fault"} {
		if strings.Count(row.Note, part) != 1 {
			t.Errorf("the note is %q, without %q once", row.Note, part)
		}
	}
	if got := row.Values; got["finished"][0] != 0 || got["tasks/s"][1] != 12.5 {
		t.Errorf("got %v", got)
	}
	bad.Err, bad.Again = "", 0
	bad.addTo(table, Bare, s, Result{})
	if note := table.Row(Bare.Name).Note; note != "" {
		t.Errorf("bare claims no lock, and has the note %q", note)
	}
}

func TestAGapIsFromTheHoldersEndToTheNextStart(t *testing.T) {
	t.Parallel()
	s := Pairs(2)
	got := gaps(s, Result{
		Took: 5 * time.Second, At: []time.Duration{time.Second, 2 * time.Second, 1501 * time.Millisecond, 0},
		Began: []time.Duration{0, 0, 1500 * time.Millisecond, 0},
	}, DefaultQueue)
	if len(got) != 2 || got[0] != 500*time.Millisecond || got[1] != 3*time.Second {
		t.Errorf("got %v", got)
	}
	if got := gaps(s, Result{At: make([]time.Duration, 4), Began: make([]time.Duration, 4)}, DefaultQueue); len(got) != 0 {
		t.Errorf("without holders: %v", got)
	}
}
