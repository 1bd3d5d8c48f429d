package simulate_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/verify/simulate"
)

// One node is away while leases begin, and returns; then another node's clock is set beyond the end of their locks.
func TestRetakingAtOnceNarrowsDoubleMajorities(t *testing.T) {
	t.Parallel()
	const n, seeds = 40_000, 4
	parted := world("calm", func(s *simulate.Scenario) {
		s.Nodes, s.NodePartEvery, s.NodeParted, s.LongHolds = 3, 2*time.Minute, time.Second, 0.5
		s.Keys, s.Hot = 40, 0
	})
	count := func(atTurn bool) (double, retaken int) {
		sc := parted
		sc.RetakeAtTurn = atTurn
		for seed := range uint64(seeds) {
			r := simulate.Run(sc, seed, n, false)
			if r.Violations() > 0 {
				t.Fatalf("seed %d: %s", seed, r.First)
			}
			double, retaken = double+r.Excusable, retaken+r.Retaken
		}
		return double, retaken
	}
	before, retaken := count(true)
	after, retakenAtOnce := count(false)
	t.Logf("two valid leases: %d by renewals alone (%d retaken), %d at once (%d retaken)",
		before, retaken, after, retakenAtOnce)
	if before < 10 || after*3 > before {
		t.Errorf("two valid leases: %d before, %d after", before, after)
	}
}
