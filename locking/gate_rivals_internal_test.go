package locking

import (
	"testing"
	"testing/synctest"
)

func TestRivals(t *testing.T) {
	t.Parallel()
	var r rivals
	holdsBack := func(races int, want bool) {
		t.Helper()
		for n := range races {
			if r.known("k") != want {
				t.Fatalf("in race %d of %d it holds back: %v", n+1, races, !want)
			}
			r.won("k")
		}
	}
	holdsBack(1, false)
	for range 3 {
		holdsBack(1, true)
		holdsBack(calm, false)
	}
	r.lost("k")
	holdsBack(wariness, true)
	holdsBack(calm, false)
	holdsBack(1, true)
}

func TestAnOutageIsNoLostRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(New(&toldServer{}), GateOptions{})
		w := g.enqueue([]string{"k"}, Options{}, false)
		w.notified = true
		for _, refusal := range []struct {
			err  error
			lost bool
		}{{ErrUnavailable, false}, {&HeldError{Key: "k"}, true}} {
			if _, err := g.refused(t.Context(), w, newPause(true), refusal.err); err != nil {
				t.Fatal(err)
			}
			if g.rivals.known("k") != refusal.lost {
				t.Errorf("after %v it has rivals: %v", refusal.err, !refusal.lost)
			}
		}
	})
}
