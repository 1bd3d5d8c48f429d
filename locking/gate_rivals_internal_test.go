package locking

import "testing"

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
		holdsBack(calm+1, false)
	}
	r.lost("k")
	holdsBack(wariness, true)
	holdsBack(calm+1, false)
	holdsBack(1, true)
}
