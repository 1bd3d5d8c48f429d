package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	// rehearsal is the longest that a contestant is watched before it is measured.
	rehearsal = 500 * time.Millisecond
	least     = 100 * time.Millisecond // of all times at a small scale
)

// part is a scenario and the contestants that take part.
type part struct {
	*measure.Env
	Scenario

	contestants []Contestant
}

// turn measures a contestant once.
type turn func(ctx context.Context, t *results.Table, c Contestant) error

// contest lets each contestant have a turn in each round.
func (p part) contest(group string, turn turn) measure.Contest {
	c := measure.Contest{Group: group, Name: p.Name, Title: p.Title, Measure: func(ctx context.Context, t *results.Table) error {
		return p.Each(ctx, len(p.contestants), func(_, i int) error { return turn(ctx, t, p.contestants[i]) })
	}}
	for _, one := range p.contestants {
		c.Rows = append(c.Rows, one.Name)
	}
	return c
}

// contended measures throughput and counts commands, which it learns before a contestant's first turn. Contestants whose
// tasks in conflict wait for asynq's timer do little in much time, at an even rate: they get a second more than the ideal
// takes, 2.5 to 3.5 s in all. The others have time to finish though they take three times the ideal.
func contended(env *measure.Env, s Scenario, contestants []Contestant) measure.Contest {
	ideal := s.Ideal()
	s.Title += fmt.Sprintf("; the ideal is %.2f s", ideal.Seconds())
	p := part{env, s, contestants}
	sent, alone := map[string]*server.Sent{}, map[string]Result{}
	return p.contest("tasks-contended", func(ctx context.Context, t *results.Table, c Contestant) (err error) {
		bound := 3*ideal + 3*time.Second
		if c.Timed {
			bound = env.Span(min(max(ideal+time.Second, 2500*time.Millisecond), 3500*time.Millisecond), least)
		}
		if sent[c.Name] == nil {
			if sent[c.Name], err = Rehearse(ctx, p.Dir, c, s, p.Span(rehearsal, least)); err == nil && c.Parks {
				alone[c.Name], err = p.withoutConflicts(ctx, c, bound)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
		got, err := p.run(ctx, c, s, bound, sent[c.Name])
		if err == nil {
			got.addTo(t, c, s, alone[c.Name])
		}
		return err
	})
}

func (p part) run(ctx context.Context, c Contestant, s Scenario, bound time.Duration, sent *server.Sent) (Result, error) {
	got, err := Run(ctx, p.Dir, c, s, bound, sent)
	if err != nil {
		return got, fmt.Errorf("%s: %w", c.Name, err)
	}
	p.Report("  %s, %s: %d of %d tasks in %v", s.Name, c.Name, got.Done, got.Tasks, got.Took.Round(time.Millisecond))
	return got, nil
}

// withoutConflicts returns what tasks of the scenario's kind cost the contestant when each has a key of its own.
func (p part) withoutConflicts(ctx context.Context, c Contestant, bound time.Duration) (Result, error) {
	s := p.Distinct()
	s.Tasks = s.Tasks[:min(len(s.Tasks), p.Share(1000, 2))]
	sent, err := Rehearse(ctx, p.Dir, c, s, p.Span(rehearsal, least))
	if err != nil {
		return Result{}, err
	}
	return p.run(ctx, c, s, bound, sent)
}

// hotKey measures how many tasks of other keys are done in a second without a hot key and beside it.
func (p part) hotKey(ctx context.Context, t *results.Table, c Contestant) error {
	bound := 8*p.Ideal() + 3*time.Second
	alone, err := p.run(ctx, c, p.withoutAside(), bound, nil)
	if err != nil {
		return err
	}
	beside, err := p.run(ctx, c, p.Scenario, bound, nil)
	if err != nil {
		return err
	}
	beside.Finished = beside.Finished && beside.AsideDone == len(p.Tasks)-beside.Tasks
	beside.addTo(t, c, p.Scenario, Result{})
	note(t.Row(c.Name), alone, c)
	t.Add(c.Name, "alone/s", alone.Rate())
	t.Add(c.Name, "others/s", beside.Rate())
	t.Add(c.Name, "hot done", float64(beside.AsideDone))
	t.Add(c.Name, "all/s", beside.Rate()+float64(beside.AsideDone)/beside.Took.Seconds())
	return nil
}
