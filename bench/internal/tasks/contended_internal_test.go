package tasks

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

func result(took time.Duration, done int) Result {
	return Result{Tasks: 100, Done: done, Finished: done == 100, Took: took, Runs: []int{1, 1, 3}, Commands: math.NaN()}
}

func TestARowSaysWhatDidNotFinishAndWhatMustNotBe(t *testing.T) {
	t.Parallel()
	s := Repeat("", 1, 100, 5*time.Millisecond, 1)
	table := &report.Table{Name: "X"}
	fill(table.Row("quick"), Railtoken, s, []Result{result(time.Second, 100), result(2*time.Second, 100)}, Result{})
	quick := table.Row("quick")
	if _, ok := quick.Cells[colMakespan]; ok || quick.Spread(colMakespan).Median != 1.5 || quick.Note != "" {
		t.Errorf("quick: %+v", quick)
	}
	if got := quick.Values[colOfIdeal]; len(got) != 2 || got[0] != 0.5 || got[1] != 0.25 {
		t.Errorf("of ideal: %v", got)
	}
	bad := result(4*time.Second, 50)
	bad.Overlaps, bad.Lost, bad.Again, bad.Err = 3, 2, 1, "a fault"
	fill(table.Row("bad"), SleepRetry, s, []Result{result(4*time.Second, 60), bad}, Result{})
	got := table.Row("bad")
	for column, want := range map[string]string{colMakespan: "> 4.0: 55 of 100 done", colOverlaps: "3", colLost: "2", colRunsMost: "3"} {
		if got.Cells[column] != want {
			t.Errorf("%s: %q, want %q", column, got.Cells[column], want)
		}
	}
	for _, part := range []string{"OVERLAPPED 3 times", "1 tasks were done TWICE", "a fault"} {
		if !strings.Contains(got.Note, part) {
			t.Errorf("the note %q lacks %q", got.Note, part)
		}
	}
	fill(table.Row("mixed"), SleepRetry, s, []Result{result(time.Second, 100), result(3*time.Second, 60)}, Result{})
	if got := table.Row("mixed").Cells[colMakespan]; got != "2.00, not through in 1 of 2 runs" {
		t.Errorf("mixed: %q", got)
	}
	bad.Err, bad.Again = "", 0
	fill(table.Row("bare"), Bare, s, []Result{bad}, Result{})
	if bare := table.Row("bare"); bare.Cells[colOverlaps] != "(3)" || bare.Note != "" {
		t.Errorf("bare: %+v", bare)
	}
}

func TestOursIsJudgedByTheQuickestByHandThatExcludesAndFinishes(t *testing.T) {
	t.Parallel()
	table := &report.Table{Name: "X"}
	for name, rate := range map[string]float64{
		Railtoken.Name: 100, SleepRetry.Name: 50, SleepRedsync.Name: 80, Retry.Name: 5, Semaphore.Name: 500, Bare.Name: 1000,
	} {
		table.Row(name).Add(colRate, rate)
	}
	table.Row(Semaphore.Name).Note = "tasks of one key OVERLAPPED 1 times"
	table.Row(RetryUncounted.Name).Add(colRate, 200)
	addFinished(table.Row(RetryUncounted.Name), true)
	addFinished(table.Row(RetryUncounted.Name), false)
	aheadOf(table, colRate)
	if len(table.Targets) != 1 || table.Targets[0].Got.Median != 1.25 || !strings.Contains(table.Targets[0].What, SleepRedsync.Name) {
		t.Errorf("got %+v", table.Targets)
	}
}

func TestAGapIsFromTheEndOfTheHolderToTheStartOfTheNext(t *testing.T) {
	t.Parallel()
	s := Pairs(2)
	got := gaps(s, Result{Took: 5 * time.Second, At: []time.Duration{time.Second, 2 * time.Second, 1501 * time.Millisecond, 0}})
	if len(got) != 2 || got[0] != 500*time.Millisecond || got[1] != 3*time.Second {
		t.Errorf("got %v", got)
	}
	if got := gaps(s, Result{At: make([]time.Duration, 4)}); len(got) != 0 {
		t.Errorf("without holders: %v", got)
	}
}
