package holdings

import (
	"slices"
	"testing"
	"time"
)

const (
	mine, other = "AAAAAAAAmine", "BBBBBBBBother"
	after       = 20 * time.Second
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

// looks looks once, and checks whether the other process lives, or nobody may say so.
func (w *watch) looks(s float64, want string) {
	w.Helper()
	all := []seen{{mine, w.clock(s)}}
	if w.last != 0 {
		all = append(all, seen{other, w.last})
	}
	w.found(w.at(s), w.at(s+.01), w.clock(s), all)
	living, ok := w.Living(after)
	got := "unknown"
	if ok {
		got = "dead"
		if slices.Contains(living, ProcessOf(other)) {
			got = "alive"
		}
	}
	if got != want {
		w.Errorf("at %v s the other process is %s, want %s", s, got, want)
	}
}

func TestAProcessIsDeadSoLongAfterItsLastSign(t *testing.T) {
	t.Parallel()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s < 20; s += 5 {
		w.last = w.clock(s - 1)
		w.looks(s, "unknown")
	}
	for s := 20.0; s < 40; s += 5 {
		w.last = w.clock(s - 1)
		w.looks(s, "alive")
	}
	for s := 40.0; s < 54; s += 4.9 {
		w.looks(s, "alive")
	}
	if next := w.Next(after).Sub(w.began).Seconds(); next < 54 || next > 54.1 {
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
			w.looks(s, map[bool]string{true: "unknown", false: "alive"}[s < 20])
		}
		pause(w)
		from := map[string]float64{"a look has failed": 30, "nobody has looked for so": 90}[name]
		for s := from; s < from+20; s += 5 {
			w.looks(s, "unknown") // as it would be after an outage
		}
		w.looks(from+20, "dead")
	}
}

// The clock of Redis is set back or forward, by a failover, say.
func TestNoClockMakesAProcessDead(t *testing.T) {
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
			if living, ok := w.Living(after); ok && !slices.Contains(living, ProcessOf(other)) {
				t.Errorf("after a step of %d ms, at %v s, a process that reports is dead", step, s)
			}
		}
	}
}

func TestAProcessLivesWithAnyOfItsWorkers(t *testing.T) {
	t.Parallel()
	w := &watch{T: t, began: time.Now()}
	for s := 0.0; s <= 60; s += 5 {
		w.found(w.at(s), w.at(s+.01), w.clock(s), []seen{{other, w.clock(0)}, {ProcessOf(other) + "second", w.clock(s)}})
	}
	if living, ok := w.Living(after); !ok || !slices.Equal(living, []string{ProcessOf(other)}) {
		t.Errorf("%v live, %v", living, ok)
	}
}
