package intake

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Tasks that lie in many places, a few in each, come with a few fetches; many tasks in each come with calls that have many of them.
func TestAFetchReachesFartherWhileEachPlaceHasFewTasks(t *testing.T) {
	t.Parallel()
	w := newTurns(64, 64, false)
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		free         int
		full         bool // one of the places has as many tasks as it is asked for
		places, most int
	}{
		{64, false, 4, 16},
		{64, false, 8, 8},
		{64, false, 16, 4},
		{64, true, 32, 2},
		{64, false, 4, 16},
		{64, true, 8, 8},
		{20, true, 2, 16}, // no calls for less than a share
		{0, false, 1, 16}, // asynq asks, so it has a slot
		{5, false, 1, 8},
	} {
		for i := range w.all {
			w.hear(i, 1)
		}
		picks := w.picks(now, tt.free)
		if len(picks) != tt.places {
			t.Fatalf("%+v: %d places are asked", tt, len(picks))
		}
		for n, p := range picks {
			if p.most != tt.most || !p.share {
				t.Errorf("%+v: asks for %+v", tt, p)
			}
			full := tt.full && n == 0
			w.answered(p.place, p.asked, full, full)
			w.leave(p.place)
		}
		w.answered(60, asked{queues: 1}, true, true) // of acknowledgements, which says nothing of the others
	}
}

// While one place is asked for a higher queue, no other is asked for a lower one at the same time.
func TestAFetchOfSeveralPlacesKeepsStrictPriorities(t *testing.T) {
	t.Parallel()
	w := newTurns(8, 64, true)
	w.hear(1, setOf(0)|setOf(1))
	w.hear(2, setOf(1))
	w.hear(3, setOf(0))
	var asks []int
	for _, p := range w.picks(time.Unix(1e9, 0), 64) {
		if asks = append(asks, p.place); p.queues != setOf(0) {
			t.Errorf("place %d is asked for the queues %b", p.place, p.queues)
		}
	}
	if !slices.Equal(asks, []int{1, 3}) {
		t.Errorf("%v are asked, want those with tasks in the highest queue", asks)
	}
}

// A fetch that several places of a master do not answer has failed once.
func TestPlacesThatAreUnansweredTogetherRestOnce(t *testing.T) {
	t.Parallel()
	w := newTurns(4, 64, false)
	now := time.Unix(1e9, 0)
	for i := range 4 {
		w.hear(i, 1)
	}
	for n, rest := 0, restFirst; n < 8; n, rest = n+1, min(2*rest, restMost) {
		picks := w.picks(now, 64)
		if want := map[bool]int{true: 4, false: 1}[n == 0]; len(picks) != want {
			t.Fatalf("%d places are asked, want %d", len(picks), want)
		}
		for _, p := range picks {
			w.unanswered(p.place, p.asked, []int{0, 1, 2, 3}, now)
		}
		for _, p := range picks {
			w.leave(p.place)
		}
		if w.any(now.Add(rest-1)) || !w.any(now.Add(rest)) {
			t.Fatalf("after %d failures they do not rest for %v", n+1, rest)
		}
		now = now.Add(rest)
	}
}

// The choice of places is made while everything else of the server waits.
func BenchmarkPicks(b *testing.B) {
	for _, open := range []int{0, 256} {
		b.Run(fmt.Sprint("open=", open), func(b *testing.B) {
			w := newTurns(1024, 1024, false)
			now := time.Unix(1e9, 0)
			for i := range w.all {
				w.hear(i, 1)
			}
			for b.Loop() {
				for i := range open {
					w.all[i].open, w.all[i].since, w.all[i].served = true, now.Add(-turnLength), now
				}
				w.reach, w.full = 1024, false
				for _, p := range w.picks(now, 1024) {
					w.leave(p.place)
				}
			}
		})
	}
}
