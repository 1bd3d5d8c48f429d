// Package tasks runs tasks that want the same keys on asynq workers, each contestant in its own way, and records the
// outcome: how long it took, how often each task had to be started, and whether two tasks of a key ran at the same
// time.
//
// A [Scenario] is a list of tasks, and a [Contestant] is a way to work on it. [Run] runs a contestant on a scenario,
// with a redis-server of its own. [Measure] runs all of them: it is the task part of the benchmark.
package tasks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	// retries is how often asynq may retry a task: its own default.
	retries = 25
	// seed makes the scenarios the same in every run.
	seed = 1
	// rehearsal is the longest that a contestant is watched before it is measured.
	rehearsal = 500 * time.Millisecond
	least     = 100 * time.Millisecond // of all times at a small scale

	contendedWork = 20 * time.Millisecond
	briefWork     = 5 * time.Millisecond
	zipfKeys      = 1000
	wakePairs     = 15
)

// part is one run of this part of the benchmark.
type part struct{ *measure.Env }

// contest is a scenario and the contestants that take part.
type contest struct {
	group       string
	scenario    Scenario
	contestants []Contestant
	counted     bool // commands are counted
	limits      func(Contestant, Scenario) Limits
	// turn replaces [part.turn], when it is not nil.
	turn func(ctx context.Context, t *results.Table, c Contestant, s Scenario, limits Limits) error
}

// Measure measures what workers get done when their tasks want the same keys, with railtoken and with what people use
// today. What was measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) error {
	p := part{env}
	contests, err := p.contests()
	if err != nil {
		return err
	}
	for _, c := range contests {
		if !p.Wants(c.group, c.scenario.Name) {
			continue
		}
		if err := p.contest(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.scenario.Name, err)
		}
	}
	if !p.Wants("tasks-wake", "wake") {
		return nil
	}
	return p.wakes(ctx)
}

// share returns so many tasks as the scale says, two at least.
func (p part) share(n int) int { return p.Share(n, 2) }

// contests returns all of them, in the order in which they run.
func (p part) contests() ([]contest, error) {
	orders, from := GenerateOrders(p.share(5000), seed), "generated "
	if p.Orders != "" {
		var err error
		if orders, err = ReadOrdersFile(p.Orders); err != nil {
			return nil, err
		}
		from = "real "
	}
	byOrder, bySeller := ByOrder(orders, p.share(3000), contendedWork, seed), BySeller(orders, p.share(1500), briefWork, seed)
	byOrder.Title, bySeller.Title = from+byOrder.Title, from+bySeller.Title
	everyone := slices.Concat([]Contestant{Bare}, Ours, ByHand)
	short := slices.Concat([]Contestant{Bare, Railtoken}, ByHand)
	within := func(d time.Duration) func(Contestant, Scenario) Limits {
		return func(Contestant, Scenario) Limits { return Limits{d, retries} }
	}
	noop := Repeat("noop", p.share(5000), 1, 0, seed)
	noop.Title = fmt.Sprintf("%d tasks that do nothing on %d slots", len(noop.Tasks), Slots)
	const contended = "tasks-contended"
	contests := []contest{
		{contended, Repeat("K1", 1, p.share(500), briefWork, seed), everyone, true, p.limits, nil},
		{contended, Repeat("K4", 4, p.share(250), contendedWork, seed), everyone, true, p.limits, nil},
		{contended, Repeat("K20", 20, p.share(100), briefWork, seed), everyone, true, p.limits, nil},
		{contended, byOrder, short, true, p.limits, nil},
		{contended, bySeller, short, true, p.limits, nil},
		{
			"tasks-noop", noop, slices.Concat([]Contestant{Bare}, Ours, []Contestant{SleepRetry, SleepRedsync, Semaphore}), false,
			within(30 * time.Second), nil,
		},
	}
	for _, exponent := range []float64{0.8, 1.0, 1.2, 1.4} {
		s := Zipf(fmt.Sprintf("zipf-%.1f", exponent), exponent, zipfKeys, p.share(2000), briefWork, seed)
		contests = append(contests, contest{
			"zipf", s, []Contestant{Bare, Railtoken, SleepRetry, RetryUncounted}, false, p.limits, nil,
		})
	}
	hot := BesideAHotKey(p.share(2000), p.share(200))
	return append(contests,
		contest{
			"tasks-hotkey", hot, slices.Concat([]Contestant{Railtoken, RailtokenWait, RailtokenFIFO}, ByHand), false,
			within(8*hot.Ideal() + 3*time.Second), p.hotKey,
		},
		contest{
			"tasks-wake", Pairs(p.share(wakePairs)), slices.Concat([]Contestant{Railtoken, RailtokenParks}, ByHand), false,
			within(10 * time.Second), p.pairs,
		}), nil
}

// limits bound a contestant's run. Those whose tasks in conflict wait for asynq's timer do little in much time, at an
// even rate: they get a second more than the ideal takes, 2.5 to 3.5 s in all. The others have time to finish though
// they take three times the ideal.
func (p part) limits(c Contestant, s Scenario) Limits {
	ideal := s.Ideal()
	if c.Timed {
		return Limits{p.Span(min(max(ideal+time.Second, 2500*time.Millisecond), 3500*time.Millisecond), least), retries}
	}
	return Limits{3*ideal + 3*time.Second, retries}
}

// contest lets everyone have a turn in each round.
func (p part) contest(ctx context.Context, c contest) error {
	title := c.scenario.Title
	if c.turn == nil && c.scenario.Ideal() > 0 {
		title += fmt.Sprintf("; the ideal is %.2f s", c.scenario.Ideal().Seconds())
	}
	t := p.Table(c.scenario.Name, title)
	sent, alone := make([]*server.Sent, len(c.contestants)), make([]Result, len(c.contestants))
	for i, one := range c.contestants {
		t.AddRow(one.Name) // in this order
		if !c.counted {
			continue
		}
		var err error
		if sent[i], err = p.rehearse(ctx, one, c.scenario); err == nil && one.Parks {
			alone[i], err = p.withoutConflicts(ctx, one, c.scenario)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return p.Each(ctx, len(c.contestants), func(_, i int) error {
		one := c.contestants[i]
		limits := c.limits(one, c.scenario)
		if c.turn != nil {
			return c.turn(ctx, t, one, c.scenario, limits)
		}
		got, err := p.run(ctx, one, c.scenario, limits, sent[i])
		if err == nil {
			got.addTo(t, one, c.scenario, alone[i])
		}
		return err
	})
}

func (p part) run(ctx context.Context, c Contestant, s Scenario, limits Limits, sent *server.Sent) (Result, error) {
	got, err := Run(ctx, p.Dir, c, s, limits, sent)
	if err != nil {
		return got, fmt.Errorf("%s: %w", c.Name, err)
	}
	p.Report("  %s, %s: %d of %d tasks in %v", s.Name, c.Name, got.Done, got.Tasks, got.Took.Round(time.Millisecond))
	return got, nil
}

// rehearse learns which commands a contestant sends.
func (p part) rehearse(ctx context.Context, c Contestant, s Scenario) (*server.Sent, error) {
	return Rehearse(ctx, p.Dir, c, s, Limits{p.Span(rehearsal, least), retries})
}

// withoutConflicts returns what tasks of the scenario's kind cost the contestant when each has a key of its own.
func (p part) withoutConflicts(ctx context.Context, c Contestant, s Scenario) (Result, error) {
	s = s.Distinct()
	s.Tasks = s.Tasks[:min(len(s.Tasks), p.share(1000))]
	sent, err := p.rehearse(ctx, c, s)
	if err != nil {
		return Result{}, err
	}
	return p.run(ctx, c, s, p.limits(c, s), sent)
}

// hotKey measures how many tasks of other keys are done in a second without a hot key and beside it.
func (p part) hotKey(ctx context.Context, t *results.Table, c Contestant, s Scenario, limits Limits) error {
	alone, err := p.run(ctx, c, s.withoutAside(), limits, nil)
	if err != nil {
		return err
	}
	beside, err := p.run(ctx, c, s, limits, nil)
	if err != nil {
		return err
	}
	beside.Finished = beside.Finished && beside.AsideDone == len(s.Tasks)-beside.Tasks
	beside.addTo(t, c, s, Result{})
	note(t.Row(c.Name), alone, c)
	t.Add(c.Name, "alone/s", alone.Rate())
	t.Add(c.Name, "others/s", beside.Rate())
	t.Add(c.Name, "hot done", float64(beside.AsideDone))
	t.Add(c.Name, "all/s", beside.Rate()+float64(beside.AsideDone)/beside.Took.Seconds())
	return nil
}

// pairs measures how long a key of [Pairs] stays free while a task waits for it.
func (p part) pairs(ctx context.Context, t *results.Table, c Contestant, s Scenario, limits Limits) error {
	got, err := p.run(ctx, c, s, limits, nil)
	if err == nil {
		got.addTo(t, c, s, Result{})
		addWakes(t, c.Name, gaps(s, got, DefaultQueue))
	}
	return err
}
