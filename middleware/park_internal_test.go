package middleware

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/colocated"
)

// A task that is parked on the key is woken first, so there is nothing to decide about the next one.
func TestAFetchParksBehindAnotherTask(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy Strategy
		want     colocated.Wait
	}{
		{Requeue{}, colocated.Wait{Behind: 1, After: time.Second, Most: 55 * time.Second}},
		{Requeue{Delay: time.Minute}, colocated.Wait{Behind: 1, After: time.Minute, Most: time.Minute}},
		{Requeue{Order: FIFO}, colocated.Wait{After: time.Second, Most: 55 * time.Second, Order: "fifo"}},
		{Requeue{Order: StrictFIFO, Limits: delayqueue.Limits{Conflicts: 100}}, colocated.Wait{Order: "strict"}},
		{Requeue{Queue: "siding"}, colocated.Wait{}},
		{Requeue{Limits: delayqueue.Limits{Conflicts: 100}}, colocated.Wait{}},
		{Wait{}.Then(Requeue{}), colocated.Wait{}},
		{FailFast{}, colocated.Wait{}},
	} {
		l := &lock{Options: Options{Strategy: tt.strategy}}
		if requeue, ok := RequeueOf(tt.strategy); ok {
			l.order = requeue.Order
		}
		if got := l.Wait(); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.strategy, got, tt.want)
		}
	}
}

func TestOnlyABriefHoldOfASingleKeyHasAFollower(t *testing.T) {
	t.Parallel()
	l := &lock{Options: Options{Strategy: Requeue{}}}
	for _, tt := range []struct {
		came bool // its lock came with the task
		keys []string
		held time.Duration
		want bool
	}{
		{true, []string{"a"}, time.Millisecond, true},
		{true, []string{"a"}, 250 * time.Millisecond, true},
		{true, []string{"a"}, 251 * time.Millisecond, false},
		{true, []string{"a"}, 0, false},
		{true, []string{"a", "b"}, time.Millisecond, false},
		{false, []string{"a"}, time.Millisecond, false},
	} {
		r := &run{lock: l, keys: tt.keys, came: tt.came}
		if got := r.followed(tt.held); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}
