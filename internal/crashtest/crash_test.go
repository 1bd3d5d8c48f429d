package crashtest_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const (
	mostRuns  = 200 // of one scenario
	mostTries = 3   // to come to a step
)

func TestEffectsAreThereOnceWhateverStepAProcessStopsAfter(t *testing.T) {
	t.Parallel()
	everyStep(t, after)
}

func TestEffectsAreThereOnceWhateverStepAProcessStopsBefore(t *testing.T) {
	t.Parallel()
	everyStep(t, before)
}

func TestEffectsAreThereOnceWhateverCommandIsSentTwice(t *testing.T) {
	t.Parallel()
	everyStep(t, twice)
}

func TestEffectsAreThereOnceWhateverCommandIsSentAgainLate(t *testing.T) {
	t.Parallel()
	everyStep(t, late)
}

// everyStep plays every scenario with a fault at each of its steps, one in each run, with a gate before the locks and without.
func everyStep(t *testing.T, f fault) {
	t.Helper()
	for _, sc := range scenarios {
		for name, gate := range map[string]bool{"": false, " with a gate": true} {
			sc := sc
			sc.Gate = gate
			if sc.next != nil {
				next := *sc.next
				next.Gate = gate
				sc.next = &next
			}
			t.Run(sc.name+name, func(t *testing.T) {
				t.Parallel()
				hit := hitAll(t, sc, f)
				t.Logf("faults at %v", hit)
				for _, step := range slices.Concat(always, sc.steps) {
					if hit[step] == 0 {
						t.Errorf("no fault was at %q; there were some at %s", step, strings.Join(slices.Sorted(maps.Keys(hit)), ", "))
					}
				}
			})
		}
	}
}

// hitAll plays a scenario with a fault at each step that any run of it takes, one in each run, and returns how many faults there were at the
// steps of each name. Runs differ a little, as goroutines race; a step that a run does not come to is tried again.
func hitAll(t *testing.T, sc scenario, f fault) (hit map[string]int) {
	t.Helper()
	hit = map[string]int{}
	known := play(t, sc, spot{}, f) // it learns the steps and the scripts
	tries := map[spot]int{}
	for runs := 1; !t.Failed(); runs++ {
		at, ok := next(known, tries)
		if !ok {
			break
		}
		if runs > mostRuns {
			t.Fatalf("%d runs have not come to an end; the steps are %v", runs, known)
		}
		taken := play(t, sc, at, f)
		tries[at]++
		if taken[at.name] >= at.nth {
			hit[at.name]++
			tries[at] = mostTries
		}
		for name, n := range taken {
			known[name] = max(known[name], n)
		}
	}
	return hit
}

// next returns a step that is to be tried.
func next(known map[string]int, tries map[spot]int) (at spot, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		for nth := range known[name] {
			if at = (spot{name, nth + 1}); tries[at] < mostTries {
				return at, true
			}
		}
	}
	return spot{}, false
}
