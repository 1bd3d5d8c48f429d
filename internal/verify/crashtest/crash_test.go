package crashtest_test

import (
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	mostRuns  = 300 // of one scenario
	mostTries = 2   // to come to a step
	mateTries = 12  // to come to the first one of a name, when it may be the mate who takes it
)

// plan is what is done to every scenario.
type plan struct {
	fault   fault
	gate    bool          // in front of the locks
	restart time.Duration // how long after the end of a process the next one starts
}

// The next process finds the locks of the first one held, and asynq takes its tasks to be active for another minute. Both have a gate.
func TestEffectsAreThereOnceWhateverStepAProcessStopsBefore(t *testing.T) {
	t.Parallel()
	everyStep(t, plan{fault: before, restart: time.Second, gate: true})
}

// The next process finds the locks of the first one free, and asynq takes its tasks back at once.
func TestEffectsAreThereOnceWhateverStepAProcessStopsAfter(t *testing.T) {
	t.Parallel()
	everyStep(t, plan{fault: after, restart: 65 * time.Second})
}

func TestEffectsAreThereOnceWhateverCommandIsSentTwice(t *testing.T) {
	t.Parallel()
	everyStep(t, plan{fault: late})
}

func TestEffectsAreThereOnceWhateverReplyIsLost(t *testing.T) {
	t.Parallel()
	everyStep(t, plan{fault: lost})
}

// everyStep plays every scenario with a fault at each of its steps, one in each run.
func everyStep(t *testing.T, p plan) {
	t.Helper()
	for i, sc := range slices.Concat(scenarios, orderScenarios) {
		if sc.mate && p.fault.lives() {
			continue // of two fetches the mate may hear of one
		}
		sc.plan, sc.number = p, i
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			hit := hitAll(t, sc)
			t.Logf("faults %s %v", p.fault, hit)
			for _, step := range slices.Concat(sc.always(), sc.steps) {
				if hit[step] == 0 && sc.plays(step) && !t.Failed() {
					t.Errorf("no fault was at %q; there were some at %s", step, strings.Join(slices.Sorted(maps.Keys(hit)), ", "))
				}
			}
		})
	}
}

// plays reports whether there are faults at the steps of a name: not at looks, which are as after the step before them,
// and unless everyFault, at any other step one of the four faults. It is another one in the next scenario.
func (sc scenario) plays(step string) bool {
	if isLook(step) {
		return false
	}
	if everyFault {
		return true
	}
	all := []fault{before, after, late, lost}
	if sc.mate {
		all = all[:2]
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, step)
	return sc.fault == all[(sc.number+int(h.Sum32()>>16))%len(all)]
}

// hitAll plays a scenario with a fault at each step that any run of it takes, one in each run, and returns how many faults there were at the
// steps of each name. Runs differ a little, as goroutines race; a step that a run does not come to is tried again.
func hitAll(t *testing.T, sc scenario) (hit map[string]int) {
	t.Helper()
	hit = map[string]int{}
	known := play(t, sc, spot{}) // it learns the steps and the scripts
	for _, name := range slices.Concat(sc.always(), sc.steps) {
		known[name] = max(known[name], 1) // the mate may have taken it in this run
	}
	tries := map[spot]int{}
	for runs := 1; !t.Failed(); runs++ {
		at, ok := next(sc, known, tries, func(at spot) int {
			if sc.mate && at.nth == 1 {
				return mateTries
			}
			return mostTries
		})
		if !ok {
			break
		}
		if runs > mostRuns {
			t.Fatalf("%d runs have not come to an end; the steps are %v", runs, known)
		}
		taken := play(t, sc, at)
		tries[at]++
		if taken[at.name] >= at.nth {
			hit[at.name]++
			tries[at] = mateTries // it is done
		}
		for name, n := range taken {
			known[name] = max(known[name], n)
		}
	}
	return hit
}

// next returns a step that is to be tried.
func next(sc scenario, known map[string]int, tries map[spot]int, most func(spot) int) (at spot, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !sc.plays(name) {
			continue
		}
		for nth := range min(known[name], mostOf) {
			if at = (spot{name, nth + 1}); tries[at] < most(at) {
				return at, true
			}
		}
	}
	return spot{}, false
}
