package tasks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// wakesEach is how many wake-ups of each kind a round has, and pairs how many keys are given back in one of those for all contestants.
const (
	wakesEach = 12
	pairs     = 15
)

const (
	colWakes   = "wake-ups"
	colWake50  = "p50 ms"
	colWake95  = "p95 ms"
	colWakeMax = "most ms"
)

var wakeColumns = []string{colWakes, colWake50, colWake95, colWakeMax}

// Pairs returns two tasks for each of n keys: a holder that works for half a second to one and a half, each for another time, and
// then one that waits for it, which comes late.
func Pairs(n int) Scenario {
	s := Scenario{Name: "wake-all", Bare: Slots, Title: fmt.Sprintf("%d keys, each held for 0.5 to 1.5 s while one task waits for it", n)}
	for i := range n {
		held := 500*time.Millisecond + time.Duration(i)*time.Second/time.Duration(n)
		s.Tasks = append(s.Tasks, Task{Key: fmt.Sprint("key:", i), Work: held, Type: DefaultType, Queue: DefaultQueue})
	}
	for i := range n {
		s.Tasks = append(s.Tasks, Task{Key: fmt.Sprint("key:", i), Work: time.Millisecond, Type: DefaultType, Queue: DefaultQueue, Late: true})
	}
	s.number()
	return s
}

// gaps returns the times from the end of each holder of [Pairs] to the start of its waiter. One that was not done counts as if it began
// when the time was up.
func gaps(s Scenario, got Result) []time.Duration {
	n := len(s.Tasks) / 2
	var all []time.Duration
	for i := range n {
		held, waited := got.At[i], got.At[n+i]
		switch {
		case held == 0:
		case waited == 0:
			all = append(all, got.Took-held)
		default:
			all = append(all, waited-held-s.Tasks[n+i].Work)
		}
	}
	return all
}

// wake measures how long a key stays free while a task waits for it.
func (p *part) wake(ctx context.Context) (*report.Section, error) {
	s := &report.Section{Name: "tasks-wake", Title: "From the release of a key to the start of the next task", Text: fmt.Sprintf(
		`How long after the end of the holder's handler does the handler of the task that waits for the key start? That counts the release, the
wake-up and the fetch.

In the first table a key is held by a task until another one has been refused and %v have passed, so that the worker
is idle and looks for tasks at its TaskCheckInterval. The holder is a task of the same worker, or of a worker with connections of its own,
as in another process. Attached, the workers are plain asynq servers with package attach. p50 and p95 are those of each round's %d wake-ups.

In the second table everyone has the same to do: %d keys are each held for 0.5 to 1.5 s, and one task waits for each. Whoever sleeps in
the slot wakes up by chance; whoever leaves it to asynq waits for its timer and its look at delayed tasks, each a second here; asynq's own
default is to look each 5 s.
`, settled, wakesEach, pairs)}
	if p.wants(s.Name, "wake") {
		p.say("wake: from a release to the start of the next handler")
		t, err := p.intervals(ctx)
		s.Tables = append(s.Tables, t)
		if err != nil {
			return s, in(t.Name, err)
		}
	}
	if p.wants(s.Name, "wake-all") {
		t, err := p.pairs(ctx)
		s.Tables = append(s.Tables, t)
		return s, in(t.Name, err)
	}
	return s, nil
}

// intervals measures [Wakes] at two intervals, of workers and of plain asynq servers that have locks attached.
func (p *part) intervals(ctx context.Context) (*report.Table, error) {
	t := &report.Table{Name: "wake", Title: "railtoken, by the TaskCheckInterval and by who released the key", Columns: wakeColumns}
	kinds := []struct {
		interval time.Duration
		attached bool
	}{{10 * time.Millisecond, false}, {50 * time.Millisecond, false}, {50 * time.Millisecond, true}}
	row := func(kind int, by string) *report.Row {
		if kinds[kind].attached {
			by += ", attached"
		}
		return t.Row(fmt.Sprintf("%v, %s", kinds[kind].interval, by))
	}
	const inside, outside = "the same worker", "another worker"
	for kind := range kinds {
		row(kind, inside)
		row(kind, outside)
	}
	err := func() error {
		for round := range p.Reps {
			for _, kind := range measure.Turns(len(kinds), round) {
				same, other, err := p.wakesOnce(ctx, kinds[kind].interval, kinds[kind].attached)
				if err != nil {
					return err
				}
				addWakes(row(kind, inside), same)
				addWakes(row(kind, outside), other)
			}
		}
		return nil
	}()
	for _, by := range []string{inside, outside} {
		brief, usual, attached := row(0, by), row(1, by), row(2, by)
		t.AtMost(10, "wake-up at "+brief.Name+": p50 in ms", brief.Values[colWake50])
		t.AtMost(60, "wake-up at "+usual.Name+": p95 in ms", usual.Values[colWake95])
		t.AtMost(3, "wake-up at "+attached.Name+": p50 in ms", attached.Values[colWake50])
	}
	return t, err
}

func (p *part) wakesOnce(ctx context.Context, interval time.Duration, attached bool) (same, other []time.Duration, err error) {
	at, err := server.Start(ctx, p.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer at.Kill()
	return Wakes(ctx, at.Addr(), interval, attached, p.share(wakesEach))
}

// pairs measures [Pairs].
func (p *part) pairs(ctx context.Context) (*report.Table, error) {
	scenario := Pairs(p.share(pairs))
	p.say("%s: %s", scenario.Name, scenario.Title)
	t := &report.Table{Name: scenario.Name, Title: scenario.Title, Columns: wakeColumns}
	contestants := slices.Concat([]Contestant{Railtoken, RailtokenParks}, ByHand)
	bound := func(Contestant, Scenario) Limits { return Limits{Bound: 10 * time.Second, Retries: retries} }
	err := p.simple(ctx, t, scenario, contestants, bound, func(r *report.Row, got Result) { addWakes(r, gaps(scenario, got)) })
	for _, c := range ByHand {
		ratios := measure.Ratios(t.Row(c.Name).Values[colWake50], t.Row(Railtoken.Name).Values[colWake50])
		t.AtLeast(1, t.Name+": p50 of "+c.Name+" / that of railtoken", ratios)
	}
	return t, err
}

// addWakes adds the wake-ups of a round.
func addWakes(r *report.Row, times []time.Duration) {
	slices.Sort(times)
	ms := func(p float64) float64 {
		if len(times) == 0 {
			return math.NaN()
		}
		return float64(measure.Percentile(times, p)) / float64(time.Millisecond)
	}
	r.Add(colWakes, float64(len(times)))
	r.Add(colWake50, ms(0.5))
	r.Add(colWake95, ms(0.95))
	r.Add(colWakeMax, ms(1))
	r.Set(colWakes, fmt.Sprintf("%.0f", sum(r.Values[colWakes])))
	r.Set(colWakeMax, fmt.Sprintf("%.1f", slices.Max(r.Values[colWakeMax])))
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}
