package holdings

import (
	"maps"
	"slices"
	"testing"
	"time"
)

const (
	mine, other = "AAAAAAAA20mine", "BBBBBBBB20other"
)

// watch has looks at the signs of two workers, with the clock of Redis a minute ahead.
type watch struct {
	*testing.T
	Life

	began time.Time
	last  int64 // of the other one
}

func (w *watch) at(s float64) time.Time { return w.began.Add(time.Duration(s * float64(time.Second))) }

func (w *watch) clock(s float64) int64 { return int64((s + 60) * 1000) }

// looks looks once, and checks whether the other worker counts as alive.
func (w *watch) looks(s float64, want string) {
	w.Helper()
	all := []seen{{mine, w.clock(s)}}
	if w.last != 0 {
		all = append(all, seen{other, w.last})
	}
	w.found(w.at(s), w.at(s+.01), w.clock(s), all)
	got := "alive"
	if last, ok := w.Dead()[NameOf(other)]; ok {
		got = "dead"
		if last != (Last{other, w.last}) {
			w.Errorf("its last sign was %v", last)
		}
	}
	if got != want {
		w.Errorf("at %v s the other worker is %s, want %s", s, got, want)
	}
}

func TestAWorkerIsDeadSoLongAfterItsLastSign(t *testing.T) {
	t.Parallel()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s < 40; s += 5 {
		w.last = w.clock(s - 1)
		w.looks(s, "alive")
	}
	for s := 40.0; s < 54; s += 4.9 {
		w.looks(s, "alive")
	}
	if next := w.Next().Sub(w.began).Seconds(); next < 54 || next > 54.1 {
		t.Errorf("the next look is due after %v s, want 54", next)
	}
	w.looks(53.8, "alive")
	w.looks(54.1, "dead")
	w.last = w.clock(55)
	w.looks(55, "alive")
}

func TestNobodyIsDeadThatHadNoTimeToReport(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(*watch){
		"a look has failed":        func(w *watch) { w.missed() },
		"nobody has looked for so": func(*watch) {},
	} {
		w := &watch{T: t, began: time.Now()}
		for s := 0.0; s <= 25; s += 5 {
			w.last = w.clock(s)
			w.looks(s, "alive")
		}
		pause(w)
		from := map[string]float64{"a look has failed": 30, "nobody has looked for so": 90}[name]
		for s := from; s < from+20; s += 5 {
			w.looks(s, "alive") // as it would be after an outage
		}
		w.looks(from+20, "dead")
	}
}

// The clock of Redis is set back or forward, by a failover, say.
func TestNoClockMakesAWorkerDead(t *testing.T) {
	t.Parallel()
	for _, step := range []int64{-3_600_000, 3_600_000} {
		w := &watch{T: t, began: time.Now()}
		for s := 0.0; s <= 60; s += 5 {
			w.last = w.clock(s)
			if s > 30 {
				w.last += step
			}
			all := []seen{{mine, w.last}, {other, w.last}}
			now := w.last
			if s == 35 {
				now = w.clock(s) // the sign is of the other clock
			}
			w.found(w.at(s), w.at(s+.01), now, all)
			if dead := w.Dead(); len(dead) > 0 {
				t.Errorf("after a step of %d ms, at %v s, a worker that reports is dead", step, s)
			}
		}
	}
}

// deadOf returns who is dead after a minute of looks each 5 s at what signs returns, by the time of each look (s).
func deadOf(t *testing.T, signs func(w *watch, s float64) []seen) []string {
	t.Helper()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s <= 60; s += 5 {
		w.found(w.at(s), w.at(s+.01), w.clock(s), signs(w, s))
	}
	return slices.Sorted(maps.Keys(w.Dead()))
}

// The worker that looks has another After, or none.
func TestEachWorkerGoesByItsOwnAfter(t *testing.T) {
	t.Parallel()
	dead := deadOf(t, func(w *watch, s float64) []seen {
		return []seen{
			{"SHORTOOO10x", w.clock(min(s, 45))},
			{"LONGOOOO20x", w.clock(min(s, 45))},
			{"NEVEROOO00x", w.clock(0)},
			{"EARLIEROABCDEFGHIJ", w.clock(0)},
			{"TINYOOOO", w.clock(0)},
		}
	})
	if want := []string{"SHORTOOO"}; !slices.Equal(dead, want) {
		t.Errorf("dead are %v, want %v", dead, want)
	}
}

// It has had its tasks put back.
func TestAWorkerThatSaysGoodbyeIsNotDead(t *testing.T) {
	t.Parallel()
	if dead := deadOf(t, func(w *watch, s float64) []seen {
		if s > 30 {
			return nil
		}
		return []seen{{other, w.clock(0)}}
	}); len(dead) > 0 {
		t.Errorf("%v are dead", dead)
	}
}

// The clock of Redis is set forward just before a look: the sign is newer than it looks. It may not make the worker dead sooner.
func TestAClockThatIsSetTellsNoAge(t *testing.T) {
	t.Parallel()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s <= 30; s += 5 {
		w.last = w.clock(s)
		w.looks(s, "alive")
	}
	w.last = w.clock(34.9) // by the clock before
	for s := 35.0; s < 54.9; s += 4.9 {
		w.found(w.at(s), w.at(s+.01), w.clock(s)+30_000, []seen{{mine, w.clock(s) + 30_000}, {other, w.last}})
		if dead := w.Dead(); len(dead) > 0 {
			t.Errorf("at %v s %v are dead", s, dead)
		}
	}
}

// A replica has become the master that has missed the last sign of the other worker: nobody knows which others it has missed.
func TestASignThatIsOlderThanBeforeGivesEverybodyTime(t *testing.T) {
	t.Parallel()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s <= 30; s += 5 {
		w.last = w.clock(s)
		w.looks(s, "alive")
	}
	w.last = w.clock(25)
	for s := 35.0; s < 55; s += 5 {
		w.looks(s, "alive")
	}
	w.looks(55.1, "dead")
}
