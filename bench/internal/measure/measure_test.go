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

func TestPairsCountsWhatEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		load := measure.Load{Callers: 3, Warm: 50 * time.Millisecond, For: time.Second}
		sample, left := measure.Pairs(load, func(int) error {
			time.Sleep(7 * time.Millisecond)
			return nil
		})
		left()
		// Pairs end at 7, 14, ... ms; from 50 to 1050 ms these are the 8th to the 150th, of which the last ends at the very end.
		if sample.Done != 3*143 || sample.Rate() != 3*143 {
			t.Errorf("done: %d, %v/s", sample.Done, sample.Rate())
		}
		if got := results.PercentileIn(time.Millisecond, sample.Latencies, 0.5); got != 7 {
			t.Errorf("p50 is %v", got)
		}
	})
}

func TestPairsThatHangAreAmongTheLatencies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		sample, left := measure.Pairs(measure.Load{Callers: 2, For: time.Second}, func(int) error {
			<-over
			return nil
		})
		if sample.Done != 0 || sample.Unfinished != 2 || results.PercentileIn(time.Second, sample.Latencies, 0.5) != 1 {
			t.Errorf("got %+v", sample)
		}
		close(over)
		left()
	})
}

func TestPairsThatFailAreNotDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		sample, left := measure.Pairs(measure.Load{Callers: 1, For: time.Second}, func(int) error { return broken })
		left()
		if sample.Done != 0 || sample.Failed == 0 || !errors.Is(sample.Err, broken) {
			t.Errorf("got %+v", sample)
		}
	})
}

func TestContendAgainstAMutexReachesTheIdeal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mutex := make(chan struct{}, 1)
		w := window(100*time.Millisecond, time.Second)
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
		if got.Acquired < 999 || got.Acquired > 1001 || got.Overlaps != 0 || got.Failed != 0 {
			t.Errorf("got %+v", got)
		}
		if got.MeanWait() < 6*time.Millisecond || got.MeanWait() > 8*time.Millisecond {
			t.Errorf("the mean wait is %v, want 7 ms: that of 8 in a line", got.MeanWait())
		}
	})
}

func TestContendSeesHoldsThatOverlapAndWaitsWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var once sync.Once
		got := measure.Contend(t.Context(), window(0, time.Second), 3, 1, func(ctx context.Context, _ int, hold func()) error {
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
		if got.Longest != time.Second || got.Failed != 0 {
			t.Errorf("the longest wait is %v, with %d failures (%s)", got.Longest, got.Failed, got.Err)
		}
	})
}

func TestContendKeepsKeysApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mutexes := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		var asked [2]atomic.Int32
		got := measure.Contend(t.Context(), window(0, time.Second), 4, 2, func(_ context.Context, key int, hold func()) error {
			mutexes[key] <- struct{}{}
			defer func() { <-mutexes[key] }()
			asked[key].Add(1)
			hold()
			return nil
		})
		// Two keys are held for 1 ms each, at the same time.
		if got.Acquired != 2000 || got.Overlaps != 0 {
			t.Errorf("got %+v", got)
		}
		if a, b := asked[0].Load(), asked[1].Load(); a < 1000 || a > 1002 || b < 1000 || b > 1002 {
			t.Errorf("the keys were held %d and %d times", a, b)
		}
	})
}

func window(warm, length time.Duration) measure.Window {
	from := time.Now().Add(warm)
	return measure.Window{From: from, Until: from.Add(length)}
}
