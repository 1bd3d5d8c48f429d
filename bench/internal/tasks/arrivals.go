package tasks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
)

const (
	// lead is the time from the start of the servers to the first arrival.
	lead = 300 * time.Millisecond
	// warmTasks is the share of the arrivals, one in so many, that come before those that count.
	warmTasks = 10
	// grace is what tasks get after the last arrival. Those that are not done by then count with the time until then.
	grace = 2 * time.Second
	// arrivalProducers enqueue at the same time, so that a slow call does not hold up the arrivals behind it.
	arrivalProducers = 4
)

// arriving adds tasks that arrive at random times, so many a second on average and each independent of the others, for
// some time. task returns the n-th of them.
func (s Scenario) arriving(rate float64, span time.Duration, seed uint64, task func(n int) Task) Scenario {
	s.Producers = arrivalProducers
	rng := rand.New(rand.NewPCG(seed, 0))
	at := lead
	for n := 0; ; n++ {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		if at >= lead+span && n > 0 {
			return s
		}
		t := task(n)
		t.After = at
		s = s.with(t)
	}
}

// last returns when the last task arrives.
func (s Scenario) last() (last time.Duration) {
	for _, t := range s.Tasks {
		last = max(last, t.After)
	}
	return last
}

// latencies are those of the arrivals of a run, sorted, from the moment at which each task should have arrived: if it was
// enqueued late, the delay counts.
type latencies struct{ start, end []time.Duration }

// latenciesOf returns those of the tasks that are not aside and came after the warm-up. A task that was not begun or done
// counts with the time until the run was over.
func latenciesOf(s Scenario, got Result) (l latencies) {
	counted := slices.DeleteFunc(slices.Clone(s.Tasks), func(t Task) bool { return t.Aside })
	slices.SortStableFunc(counted, func(a, b Task) int { return int(a.After - b.After) })
	for _, t := range counted[len(counted)/warmTasks:] {
		started, ended := got.Began[t.N], got.At[t.N]
		if started == 0 {
			started = got.Took
		}
		if ended == 0 {
			ended = got.Took
		}
		l.start, l.end = append(l.start, max(started-t.After, 0)), append(l.end, max(ended-t.After, 0))
	}
	slices.Sort(l.start)
	slices.Sort(l.end)
	return l
}

// addTo adds the percentiles to a row, in columns whose names begin with a prefix.
func (l latencies) addTo(t *results.Table, row, prefix string) {
	for _, which := range []struct {
		name  string
		times []time.Duration
	}{{"start", l.start}, {"end", l.end}} {
		for _, p := range []float64{50, 99} {
			t.Add(row, fmt.Sprintf("%s%s p%v ms", prefix, which.name, p), results.PercentileIn(time.Millisecond, which.times, p/100))
		}
	}
}

// steadyRate returns how many tasks were done in a second between the first tenth of those that were done and the last
// fifth: without the beginning, and without the end at which slots are free. It is NaN when too few were done.
func steadyRate(got Result) float64 {
	done := slices.DeleteFunc(slices.Clone(got.At), func(at time.Duration) bool { return at == 0 })
	slices.Sort(done)
	from, until := len(done)/10, len(done)*4/5
	if until <= from || done[until] <= done[from] {
		return math.NaN()
	}
	return float64(until-from) / (done[until] - done[from]).Seconds()
}
