package shards

import (
	"math"
	"slices"
	"testing"

	"github.com/railtoken/railtoken/internal/keys"
)

func TestTheRateIsTheLeastOfThreeLimits(t *testing.T) {
	t.Parallel()
	m := Model{Client: 100, Server: 50, Imbalance: 1.25, RTT: 500, Fetchers: 4}
	for _, c := range []struct {
		what            string
		shards, workers int
		change          func(*Model)
		want            float64
	}{
		{"a worker fetches 4 tasks in 500 µs", 4, 1, nil, 8000},
		{"a worker's core bears 10 000 tasks/s", 4, 1, func(m *Model) { m.Fetchers = 8 }, 10_000},
		{"one shard bears 20 000, and has no other to be out of balance with", 1, 64, nil, 20_000},
		{"two shards bear 32 000, as one has five eighths", 2, 64, nil, 32_000},
		{"no round trip is no limit", 16, 2, func(m *Model) { m.RTT = 0 }, 20_000},
		{"an imbalance that nobody knows is none", 2, 64, func(m *Model) { m.Imbalance = 0 }, 40_000},
	} {
		m := m
		if c.change != nil {
			c.change(&m)
		}
		if got := m.Rate(c.shards, c.workers); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestMoreNeverPredictsLess(t *testing.T) {
	t.Parallel()
	m := Model{Client: 120, Server: 70, Imbalance: 1.1, RTT: 500, Fetchers: 4}
	for _, k := range modelShards[1:] {
		for _, n := range modelWorkers[1:] {
			if m.Rate(k, n) < m.Rate(k/2, n) || m.Rate(k, n) < m.Rate(k, n/2) {
				t.Errorf("%d shards and %d workers: %v", k, n, m.Rate(k, n))
			}
		}
	}
}

func TestSharedCoresBearWhatATaskCostsOnBothSides(t *testing.T) {
	t.Parallel()
	if got := (Model{Client: 150, Server: 50}).Shared(2); got != 10_000 {
		t.Errorf("got %v, want 10 000", got)
	}
}

func TestMemoryIsThatOfTasksAndIdleKeys(t *testing.T) {
	t.Parallel()
	if got := Memory(1000, 10, 500, 100); got != 501_000 {
		t.Errorf("got %v", got)
	}
}

func TestImbalanceIsTheBusiestByTheMean(t *testing.T) {
	t.Parallel()
	for want, loads := range map[float64][]float64{1: {3, 3, 3}, 1.5: {3, 1, 2}, 2: {4, 0}} {
		if got := imbalance(loads); got != want {
			t.Errorf("%v: %v, want %v", loads, got, want)
		}
	}
}

func TestQueuesAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	for k := 1; k <= most; k++ {
		on := make([]int, k)
		for _, name := range queueNames() {
			slot := keys.Slot("asynq:{" + name + "}:pending")
			i := 0
			for slot > (i+1)*slots/k-1 {
				i++
			}
			on[i]++
		}
		if slices.Min(on) != queues/k || slices.Max(on) != queues/k {
			t.Errorf("%d shards have %v queues", k, on)
		}
	}
}
