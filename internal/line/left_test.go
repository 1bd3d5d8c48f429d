package line_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/broker"
	"github.com/railtoken/railtoken/internal/colocated"
)

// oneRelease are locks with one release.
type oneRelease struct {
	colocated.Locks

	release *colocated.Release
}

func (l oneRelease) Release(*colocated.Taken) *colocated.Release { return l.release }

// A server gives back a task whose earlier run still works there. Another task was refused its key in the meantime.
func TestALockThatIsGivenBackWithItsTaskWakesTheNext(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	next := r.Delayed("next")
	r.Park(next, "k")
	release := colocated.NewRelease([]string{"lock:{k}"}, "owner", []int64{1}, nil)
	taken := &colocated.Taken{Keys: []string{"k"}, Locks: oneRelease{release: release}}
	if got := r.Engine.Left(broker.Fetched{Queue: "default", ID: "back", Run: "run", Taken: taken}); got != release {
		t.Fatalf("its locks are released by %v", got)
	}
	release.Answered(colocated.Outcome{Notify: true})
	r.Engine.Settle()
	if state := r.Client.HGet(t.Context(), next.Hash(), "state").Val(); state != "pending" {
		t.Errorf("the next task of the key is %s", state)
	}
}
