package tasks_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/bench/internal/tasks"
)

const workTime = 5 * time.Millisecond

func list(keys ...string) []tasks.Task {
	var all []tasks.Task
	for i, key := range keys {
		all = append(all, tasks.Task{N: i, Key: key, Work: workTime})
	}
	return all
}

func TestATallyIsOverWithTheLastTaskAndTakesUntilItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tally := tasks.NewVirtualTally(list("a", "a", "b"))
		for n := range 3 {
			select {
			case <-tally.Over():
				t.Error("it is over too early")
			default:
			}
			tally.Run(n)
			if err := tally.Work(t.Context(), n); err != nil {
				t.Error(err)
			}
		}
		tally.Run(2)
		<-tally.Over()
		time.Sleep(time.Second)
		got := tally.Freeze(began)
		if !slices.Equal(got.Runs, []int{1, 1, 2}) || got.Tasks != 3 || got.Done != 3 || !got.Finished || got.Took != 3*workTime || got.Overlaps != 0 || got.Again != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestATallySeesWorkOnOneKeyOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for keys, want := range map[string]int{"aa": 1, "aaa": 2, "ab": 0} {
			all := make([]tasks.Task, len(keys))
			for i, key := range keys {
				all[i] = tasks.Task{N: i, Key: string(key), Work: workTime}
			}
			tally := tasks.NewVirtualTally(all)
			var wg sync.WaitGroup
			for n := range all {
				wg.Go(func() { _ = tally.Work(t.Context(), n) })
			}
			wg.Wait()
			if got := tally.Freeze(time.Now()).Overlaps; got != want {
				t.Errorf("%s: %d overlaps, want %d", keys, got, want)
			}
		}
	})
}

func TestATallyCountsATaskThatIsDoneTwiceOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tally := tasks.NewVirtualTally(list("a", "b"))
		for range 2 {
			_ = tally.Work(t.Context(), 0)
		}
		got := tally.Freeze(time.Now())
		if got.Done != 1 || got.Again != 1 || got.Finished {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWhatHappensAfterTheEndDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tally := tasks.NewVirtualTally(list("a", "b", "c"))
		_ = tally.Work(t.Context(), 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		broken := make(chan error, 1)
		go func() { broken <- tally.Work(ctx, 1) }()
		time.Sleep(workTime / 2)
		first := tally.Freeze(began)
		over := errors.New("over")
		cancel(over)
		if err := <-broken; !errors.Is(err, over) {
			t.Errorf("work that was broken off returns %v", err)
		}
		_ = tally.Work(t.Context(), 2)
		tally.Run(2)
		tally.Parked()
		tally.Fault(over)
		again := tally.Freeze(began)
		if first.Took != 3*workTime/2 || first.Done != 1 || first.Finished {
			t.Errorf("got %+v", first)
		}
		if again.Done != 1 || again.Parked != 0 || again.Err != "" || again.AtMost(0) != 1 {
			t.Errorf("afterwards %+v", again)
		}
	})
}

func TestATallyDoesNotWaitForTasksAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		all := list("a", "b", "b")
		all[1].Aside, all[2].Aside = true, true
		tally := tasks.NewVirtualTally(all)
		for n := range 2 {
			_ = tally.Work(t.Context(), n)
		}
		<-tally.Over()
		got := tally.Freeze(began)
		if got.Tasks != 1 || got.Done != 1 || got.AsideDone != 1 || !got.Finished || got.Took != workTime {
			t.Errorf("got %+v", got)
		}
		if want := []time.Duration{workTime, 2 * workTime, 0}; !slices.Equal(got.At, want) {
			t.Errorf("they were done at %v, want %v", got.At, want)
		}
	})
}

func TestRunsAreThoseOfTheTasksShare(t *testing.T) {
	t.Parallel()
	r := tasks.Result{}
	for range 98 {
		r.Runs = append(r.Runs, 1)
	}
	r.Runs = append(r.Runs, 2, 7)
	if r.AtMost(2) != 0.99 || r.AtMost(1) != 0.98 || r.AtMost(7) != 1 {
		t.Errorf("at most once %v, twice %v, seven times %v", r.AtMost(1), r.AtMost(2), r.AtMost(7))
	}
	if none := (tasks.Result{}); !math.IsNaN(none.AtMost(2)) || !math.IsNaN(none.PerTask()) || none.Rate() != 0 {
		t.Error("nothing has a figure")
	}
}

func TestCommandsPerConflictLeaveOutWhatTasksCostAnyway(t *testing.T) {
	t.Parallel()
	contended := tasks.Result{Tasks: 100, Done: 100, Finished: true, Commands: 700, Parked: 50}
	alone := tasks.Result{Tasks: 100, Done: 100, Finished: true, Commands: 400}
	if got := contended.PerConflict(alone); got != 6 {
		t.Errorf("got %v, want 6", got)
	}
	if got := alone.PerConflict(alone); !math.IsNaN(got) {
		t.Errorf("without conflicts: %v", got)
	}
	contended.Finished = false
	if got := contended.PerConflict(alone); !math.IsNaN(got) {
		t.Errorf("of a run that did not finish: %v", got)
	}
	if got := (tasks.Result{Done: 50, Took: 2 * time.Second}).Rate(); got != 25 {
		t.Errorf("the rate is %v", got)
	}
}
