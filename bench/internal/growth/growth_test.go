package growth

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

func TestGrowthIsTheLargestBySmallestOfEachRound(t *testing.T) {
	t.Parallel()
	rows := []*report.Row{
		{Name: "1", Values: map[string][]float64{"c": {10, 30, 7, 4}}},
		{Name: "10", Values: map[string][]float64{"c": {20, 10, math.NaN()}}},
		{Name: "100", Values: map[string][]float64{"c": {15, 20, 8, 8}}},
	}
	if got, want := growth(rows, "c"), []float64{2, 3}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := growth(rows[:1], "c"); got != nil {
		t.Errorf("one size grows by %v", got)
	}
	if got := growth(rows, "none"); got != nil {
		t.Errorf("a column without values grows by %v", got)
	}
}

func TestSizesShrinkWithTheScale(t *testing.T) {
	t.Parallel()
	all := []int{1, 10, 100, 1000, 10_000}
	for scale, want := range map[int][]int{100: all, 10: all[:4], 2: all[:3], 1: all[:3]} {
		if got := sizes(scale, all...); !slices.Equal(got, want) {
			t.Errorf("at %d%%: %v, want %v", scale, got, want)
		}
	}
	if got := sizes(1, 1, 10); len(got) != 2 {
		t.Errorf("%v has no two sizes to compare", got)
	}
}

func TestSpreadTakesKeysFromAllOver(t *testing.T) {
	t.Parallel()
	names := lockall.Keys(100)
	if got, want := spread(names, 4), []string{names[0], names[25], names[50], names[75]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := spread(names, 100); !slices.Equal(got, names) {
		t.Errorf("got %d of all", len(got))
	}
}

func TestNamesOfSizesAreReadable(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{1: "1", 100: "100", 1000: "1 000", 100_000: "100 000", 1_234_567: "1 234 567"} {
		if got := name(size); got != want {
			t.Errorf("%d is %q, want %q", size, got, want)
		}
	}
}

func TestCostsAreOfOneUnit(t *testing.T) {
	t.Parallel()
	got := costOf(usage.Cost{
		Units: 4, Took: 8 * time.Microsecond, Client: 2 * time.Microsecond, Commands: 6,
		Servers: []time.Duration{time.Microsecond, 3 * time.Microsecond},
	})
	want := map[string]float64{rate: 500_000, took: 2, client: 0.5, commands: 1.5, servers: 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
