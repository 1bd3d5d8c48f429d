package simulate_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/verify/simulate"
)

// world returns a scenario with changes.
func world(name string, changes ...func(*simulate.Scenario)) simulate.Scenario {
	for _, sc := range simulate.Scenarios() {
		if sc.Name == name {
			for _, change := range changes {
				change(&sc)
			}
			return sc
		}
	}
	panic("no scenario " + name)
}

// forgetful makes nodes crash all the time while leases are held.
func forgetful(s *simulate.Scenario) {
	s.Nodes, s.NodeCrashEvery, s.LongHolds, s.Stalled = 3, 4*time.Second, 0.03, 0
}

// repeated makes most requests arrive twice, in any order.
func repeated(s *simulate.Scenario) {
	s.Nodes, s.Keys, s.Hot, s.Clients, s.Slots = 3, 40, 0, 6, 1
	s.Timeout, s.MinTTL, s.TopTTL, s.LongHolds = 5*time.Millisecond, 20*time.Millisecond, 60*time.Millisecond, 0.1
	s.Duplicated, s.LateDuplicate, s.LateBy, s.Lost, s.Skew = 0.7, 0.7, 100*time.Millisecond, 0.15, 460*time.Millisecond
	s.Tail = 0
}

// stalled makes clients propose tokens long before they ask for the lock, on keys that are seldom used, while nodes
// lose all data.
func stalled(s *simulate.Scenario) {
	s.Nodes, s.Keys, s.Hot, s.MinTTL, s.Clients, s.Slots = 3, 1000, 0, 2*time.Second, 6, 30
	s.Stalled, s.LongestStop, s.NodeCrashEvery = 0.3, 2*time.Second, 6*time.Second
	s.LongHolds, s.Skew = 0, 460*time.Millisecond
	s.ClientCrashEvery, s.Tail = 0, 0.001
}

// heldLong makes many leases so long that they are renewed.
func heldLong(s *simulate.Scenario) { s.Keys, s.LongHolds = 10, 0.3 }

// renewedSeldom makes leases end because their renewals are lost.
func renewedSeldom(s *simulate.Scenario) { s.LongHolds, s.Lost = 0.05, 0.1 }

// retakesAtTurn leaves nodes that miss a lock to the renewals, so that a second owner gets it there more often.
func retakesAtTurn(s *simulate.Scenario) { s.RetakeAtTurn = true }

func TestWrongVariantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		variant simulate.Variant
		world   simulate.Scenario
		seed    uint64
		most    int // acquisitions
	}{
		{simulate.IncrementOnly, world("calm"), 1, 2_000},
		{simulate.SmallestGranted, world("skew"), 1, 2_000},
		{simulate.SumOfGranted, world("calm"), 1, 2_000},
		{simulate.ClientClockOnly, world("skew"), 1, 2_000},
		{simulate.BlindWriteBack, world("duplicates", repeated), 1, 20_000},
		{simulate.OwnerOnlyWriteBack, world("duplicates", repeated, retakesAtTurn), 290, 40_000},
		{simulate.FirstAnswer, world("skew"), 1, 2_000},
		{simulate.NoGuard, world("full loss", forgetful), 1, 20_000},
		{simulate.NoGuard, world("partial loss", forgetful), 113, 20_000},
		{simulate.OverlappingBlocks, world("skew"), 1, 2_000},
		{simulate.UncheckedValidity, world("pauses"), 1, 10_000},
		{simulate.AnsweringQuorum, world("lossy"), 1, 10_000},
		{simulate.MonotonicOnly, world("pauses"), 1, 10_000},
		{simulate.WallOnly, world("clock jumps"), 66, 20_000},
		{simulate.StaleProposals, world("full loss", stalled), 67, 20_000},
		{simulate.RetakeLowers, world("duplicates", repeated, heldLong), 25, 30_000},
		{simulate.RetakeExpired, world("pauses", renewedSeldom), 3, 10_000},
		{simulate.UnmarkedRelease, world("lossy"), 1, 10_000},
	} {
		t.Run(tt.variant.String()+", "+tt.world.Name, func(t *testing.T) {
			t.Parallel()
			sc := tt.world
			sc.Variant = tt.variant
			r := simulate.Run(sc, tt.seed, tt.most, true)
			if r.Violations() == 0 {
				t.Fatalf("not caught in %d acquisitions, %d of them committed", r.Acquisitions, r.Committed)
			}
			t.Logf("caught after %d acquisitions: %s", r.Acquisitions, r.First)
			// It is the variant that is wrong, not the world.
			if r = simulate.Run(tt.world, tt.seed, r.Acquisitions, true); r.Violations() != 0 {
				t.Errorf("seed %d: the correct protocol fails there too: %s", tt.seed, r.First)
			}
		})
	}
}

func TestEveryVariantHasAName(t *testing.T) {
	seen := map[string]bool{}
	for v := simulate.Correct; v <= simulate.UnmarkedRelease; v++ {
		seen[v.String()] = true
	}
	if len(seen) != int(simulate.UnmarkedRelease)+1 {
		t.Errorf("%d names", len(seen))
	}
}
