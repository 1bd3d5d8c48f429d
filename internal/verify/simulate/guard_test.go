package simulate_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/verify/simulate"
)

// trustUptime is a guard that believes the age that a server reports.
func trustUptime(
	f restartguard.Facts, l restartguard.Limits, k restartguard.Known, others []string, now time.Time,
) (restartguard.Known, time.Time) {
	f.Watched = max(f.Watched, f.Uptime-time.Second)
	return simulate.Production(f, l, k, others, now)
}

// clockSet makes clients and nodes start anew all the time, the nodes with a clock that is set after they have started.
func clockSet(s *simulate.Scenario) {
	forgetful(s)
	s.ClockSet, s.ClientCrashEvery = 1, 2*time.Second
}

func TestAServerCannotMakeItselfOlder(t *testing.T) {
	t.Parallel()
	const seed, most = 1, 40_000
	wrong := simulate.Run(world("full loss", clockSet, func(s *simulate.Scenario) { s.Guard = trustUptime }), seed, most, true)
	if wrong.Violations() == 0 {
		t.Fatalf("a guard that believes servers is not caught in %d acquisitions", wrong.Acquisitions)
	}
	t.Logf("caught after %d acquisitions: %s", wrong.Acquisitions, wrong.First)
	r := simulate.Run(world("full loss", clockSet), seed, most, true)
	if r.Violations() > 0 {
		t.Error(r.First)
	}
	if r.Committed < most/20 {
		t.Errorf("%d of %d acquisitions are committed", r.Committed, r.Acquisitions)
	}
	t.Logf("%d committed, %d dials refused, %d nodes and %d clients crashed", r.Committed, r.Refused, r.Crashes, r.Deaths)
}
