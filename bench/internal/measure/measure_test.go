package measure_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

func TestTurnsGiveEveryContestantEveryPlace(t *testing.T) {
	t.Parallel()
	const n = 5
	var places [n][n]int // of contestant i, how often at place p
	for round := range 2 * n {
		order := measure.Turns(n, round)
		for place, i := range order {
			places[i][place]++
		}
	}
	for i, row := range places {
		if row != [n]int{2, 2, 2, 2, 2} {
			t.Errorf("contestant %d was so often at each place: %v", i, row)
		}
	}
}

func TestTheScaleShrinksWhatIsMeasured(t *testing.T) {
	t.Parallel()
	env := measure.Env{Scale: 5, Run: regexp.MustCompile("^(K4|locks-one)$")}
	if env.Share(200, 2) != 10 || env.Share(20, 2) != 2 || env.Span(time.Second, 0) != 50*time.Millisecond {
		t.Errorf("%d, %d, %v", env.Share(200, 2), env.Share(20, 2), env.Span(time.Second, 0))
	}
	if !env.Wants("K4") || !env.Wants("A1", "locks-one") || env.Wants("K40") || !(&measure.Env{}).Wants("anything") {
		t.Error("the wrong tables are wanted")
	}
}

func TestCallersCountWhatTheyGetInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sample, left := measure.Callers(3, measure.After(50*time.Millisecond, time.Second), func(_ int, got func()) error {
			time.Sleep(7 * time.Millisecond)
			got()
			return nil
		})
		left()
		// They get it at 7, 14, ... ms; from 50 to 1050 ms these are the 8th to the 149th.
		if sample.Done() != 3*142 {
			t.Errorf("done: %d", sample.Done())
		}
		if got := results.PercentileIn(time.Millisecond, sample.Sorted(), 0.5); got != 7 {
			t.Errorf("p50 is %v", got)
		}
	})
}

func TestCallersThatHangAreAmongTheLatencies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		sample, left := measure.Callers(2, measure.After(0, time.Second), func(int, func()) error {
			<-over
			return nil
		})
		if sample.Done() != 0 || len(sample.Hung) != 2 || results.PercentileIn(time.Second, sample.Sorted(), 0.5) != 1 {
			t.Errorf("got %+v", sample)
		}
		close(over)
		left()
	})
}

func TestCallersThatFailGetNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sample, left := measure.Callers(1, measure.After(0, time.Second), func(int, func()) error { return errors.New("broken") })
		left()
		if sample.Done() != 0 || sample.Failed == 0 || sample.Err != "broken" {
			t.Errorf("got %+v", sample)
		}
	})
}

func TestContendAgainstAMutexReachesTheIdeal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mutex := make(chan struct{}, 1)
		w := measure.After(100*time.Millisecond, time.Second)
		got := measure.Contend(t.Context(), w, 8, 1, func(ctx context.Context, _ int, hold func()) error {
			select {
			case mutex <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			hold()
			<-mutex
			return nil
		})
		if got.Done() < 999 || got.Done() > 1001 || got.Overlaps != 0 || got.Failed != 0 {
			t.Errorf("got %+v", got)
		}
		if wait := results.PercentileIn(time.Millisecond, got.Sorted(), 0.5); wait < 6 || wait > 8 {
			t.Errorf("they wait for %v ms, want 7: that of 8 in a line", wait)
		}
	})
}

func TestContendSeesHoldsThatOverlapAndWaitsWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var once sync.Once
		got := measure.Contend(t.Context(), measure.After(0, time.Second), 3, 1, func(ctx context.Context, _ int, hold func()) error {
			starved := false
			once.Do(func() { starved = true })
			if starved {
				<-ctx.Done()
				return ctx.Err()
			}
			hold()
			return nil
		})
		if got.Overlaps == 0 {
			t.Error("no overlap was seen")
		}
		if all := got.Sorted(); len(got.Hung) != 1 || all[len(all)-1] != time.Second || got.Failed != 0 {
			t.Errorf("hung: %v, with %d failures (%s)", got.Hung, got.Failed, got.Err)
		}
	})
}

func TestContendKeepsKeysApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mutexes := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		var asked [2]atomic.Int32
		got := measure.Contend(t.Context(), measure.After(0, time.Second), 4, 2, func(_ context.Context, key int, hold func()) error {
			mutexes[key] <- struct{}{}
			defer func() { <-mutexes[key] }()
			asked[key].Add(1)
			hold()
			return nil
		})
		// Two keys are held for 1 ms each, at the same time.
		if got.Done() != 2000 || got.Overlaps != 0 {
			t.Errorf("got %d, %d overlaps", got.Done(), got.Overlaps)
		}
		if a, b := asked[0].Load(), asked[1].Load(); a < 1000 || a > 1002 || b < 1000 || b > 1002 {
			t.Errorf("the keys were held %d and %d times", a, b)
		}
	})
}
