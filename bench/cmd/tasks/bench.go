package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// rehearsal is the longest that a contestant is watched before it is measured.
const rehearsal = 3 * time.Second

// bench is one run of the program.
type bench struct {
	reps, scale, wakes int
	limits             tasks.Limits
	run, only          *regexp.Regexp
	orders             string
	scenarios          []tasks.Scenario
	say                func(format string, args ...any)
}

// all measures the scenarios that were asked for.
func (b *bench) all(ctx context.Context, dir string) (tables []*table, wakes []*wake, err error) {
	for _, s := range b.scenarios {
		if !b.run.MatchString(s.Name) {
			continue
		}
		b.say("%s: %s", s.Name, s.Title)
		t := &table{Name: s.Name, Title: s.Title, Ideal: s.Ideal()}
		tables = append(tables, t)
		if err := b.measure(ctx, dir, s, t); err != nil {
			return tables, nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if b.run.MatchString("wake") {
		b.say("wake: from a release to the start of the next handler")
		if wakes, err = b.wakeUps(ctx, dir); err != nil {
			return tables, wakes, fmt.Errorf("wake: %w", err)
		}
	}
	return tables, wakes, nil
}

// turn is one thing to be measured in each round.
type turn struct {
	contestant tasks.Contestant
	scenario   tasks.Scenario
	sent       *server.Sent
	add        func(tasks.Result)
}

// measure lets every contestant do the scenario in each round. Those that park also do as many tasks that meet no conflict.
func (b *bench) measure(ctx context.Context, dir string, s tasks.Scenario, t *table) error {
	var turns []*turn
	for _, c := range tasks.All {
		if c.Name != tasks.Bare.Name && !b.only.MatchString(c.Name) {
			continue
		}
		r := &row{Contestant: c.Name, Locks: c.Locks}
		t.Rows = append(t.Rows, r)
		turns = append(turns, &turn{contestant: c, scenario: s, add: func(got tasks.Result) { r.Results = append(r.Results, got) }})
		if c.Parks {
			turns = append(turns, &turn{
				contestant: c, scenario: s.Distinct(),
				add: func(got tasks.Result) { r.Uncontended = append(r.Uncontended, got) },
			})
		}
	}
	brief := b.limits
	brief.Bound = min(brief.Bound, rehearsal)
	var mixed []string
	for _, turn := range turns {
		var err error
		if turn.sent, err = tasks.Rehearse(ctx, dir, turn.contestant, turn.scenario, brief); err != nil {
			return fmt.Errorf("%s: %w", turn.contestant.Name, err)
		}
		for _, name := range turn.sent.Mixed() {
			if !slices.Contains(mixed, name) {
				mixed = append(mixed, name)
			}
		}
	}
	slices.Sort(mixed)
	t.Mixed = mixed
	for round := range b.reps {
		for _, i := range measure.Turns(len(turns), round) {
			turn := turns[i]
			got, err := tasks.Run(ctx, dir, turn.contestant, turn.scenario, b.limits, turn.sent)
			if err != nil {
				return fmt.Errorf("%s: %w", turn.contestant.Name, err)
			}
			b.say("  round %d, %s, %s: %d of %d tasks in %v", round+1, turn.scenario.Name, turn.contestant.Name, got.Done, got.Tasks,
				got.Took.Round(time.Millisecond))
			turn.add(got)
		}
	}
	return nil
}

// wake is how long wake-ups took with one TaskCheckInterval.
type wake struct {
	Interval    time.Duration
	Same, Other []time.Duration
}

func (b *bench) wakeUps(ctx context.Context, dir string) ([]*wake, error) {
	all := []*wake{{Interval: 10 * time.Millisecond}, {Interval: 50 * time.Millisecond}}
	for round := range b.reps {
		for _, i := range measure.Turns(len(all), round) {
			if err := all[i].measure(ctx, dir, b.wakes); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

func (w *wake) measure(ctx context.Context, dir string, n int) error {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Kill()
	same, other, err := tasks.Wakes(ctx, s.Addr(), w.Interval, n)
	w.Same, w.Other = append(w.Same, same...), append(w.Other, other...)
	return err
}
