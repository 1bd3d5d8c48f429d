package leasing

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSinceFollowsTheFasterClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(3 * time.Second)
		if got := Since(began); got != 3*time.Second {
			t.Errorf("since %v ago by both clocks: %v", 3*time.Second, got)
		}
		// A time without a monotonic reading is compared by the wall clock.
		if got := Since(began.Round(0).Add(-20 * time.Second)); got != 23*time.Second {
			t.Errorf("since 23s ago by the wall clock: %v", got)
		}
		if got := Until(began.Add(10 * time.Second)); got != 7*time.Second {
			t.Errorf("until in 7s: %v", got)
		}
	})
}
