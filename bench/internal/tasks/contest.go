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

// part is one run of this part of the benchmark.
type part struct{ *measure.Env }

// contest is a scenario and the contestants that take part.
type contest struct {
	group       string
	scenario    Scenario
	contestants []Contestant
	bound       func(Contestant) time.Duration
	// turn measures a contestant once; nil stands for its throughput and its commands.
	turn func(ctx context.Context, t *results.Table, c Contestant, s Scenario, bound time.Duration) error
}

// contended is a contest of throughput. Contestants whose tasks in conflict wait for asynq's timer do little in much
// time, at an even rate: they get a second more than the ideal takes, 2.5 to 3.5 s in all. The others have time to
// finish though they take three times the ideal.
func (p part) contended(s Scenario, contestants []Contestant) contest {
	ideal := s.Ideal()
	s.Title += fmt.Sprintf("; the ideal is %.2f s", ideal.Seconds())
	return contest{"tasks-contended", s, contestants, func(c Contestant) time.Duration {
		if c.Timed {
			return p.Span(min(max(ideal+time.Second, 2500*time.Millisecond), 3500*time.Millisecond), least)
		}
		return 3*ideal + 3*time.Second
	}, nil}
}

// contest lets everyone have a turn in each round.
func (p part) contest(ctx context.Context, c contest) error {
	s := c.scenario
	t := p.Table(s.Name, s.Title)
	for _, one := range c.contestants {
		t.AddRow(one.Name) // in this order
	}
	if c.turn == nil {
		var err error
		if c.turn, err = p.counting(ctx, c); err != nil {
			return err
		}
	}
	return p.Each(ctx, len(c.contestants), func(_, i int) error {
		one := c.contestants[i]
		return c.turn(ctx, t, one, s, c.bound(one))
	})
}

// counting returns a turn that also counts commands, which it learns now.
func (p part) counting(
	ctx context.Context, c contest,
) (func(context.Context, *results.Table, Contestant, Scenario, time.Duration) error, error) {
	sent, alone := map[string]*server.Sent{}, map[string]Result{}
	for _, one := range c.contestants {
		var err error
		if sent[one.Name], err = p.rehearse(ctx, one, c.scenario); err == nil && one.Parks {
			alone[one.Name], err = p.withoutConflicts(ctx, one, c.scenario, c.bound(one))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return func(ctx context.Context, t *results.Table, c Contestant, s Scenario, bound time.Duration) error {
		got, err := p.run(ctx, c, s, bound, sent[c.Name])
		if err == nil {
			got.addTo(t, c, s, alone[c.Name])
		}
		return err
	}, nil
}

func (p part) run(ctx context.Context, c Contestant, s Scenario, bound time.Duration, sent *server.Sent) (Result, error) {
	got, err := Run(ctx, p.Dir, c, s, bound, sent)
	if err != nil {
		return got, fmt.Errorf("%s: %w", c.Name, err)
	}
	p.Report("  %s, %s: %d of %d tasks in %v", s.Name, c.Name, got.Done, got.Tasks, got.Took.Round(time.Millisecond))
	return got, nil
}

// rehearse learns which commands a contestant sends.
func (p part) rehearse(ctx context.Context, c Contestant, s Scenario) (*server.Sent, error) {
	return Rehearse(ctx, p.Dir, c, s, p.Span(rehearsal, least))
}

// withoutConflicts returns what tasks of the scenario's kind cost the contestant when each has a key of its own.
func (p part) withoutConflicts(ctx context.Context, c Contestant, s Scenario, bound time.Duration) (Result, error) {
	s = s.Distinct()
	s.Tasks = s.Tasks[:min(len(s.Tasks), p.Share(1000, 2))]
	sent, err := p.rehearse(ctx, c, s)
	if err != nil {
		return Result{}, err
	}
	return p.run(ctx, c, s, bound, sent)
}

// hotKey measures how many tasks of other keys are done in a second without a hot key and beside it.
func (p part) hotKey(ctx context.Context, t *results.Table, c Contestant, s Scenario, bound time.Duration) error {
	alone, err := p.run(ctx, c, s.withoutAside(), bound, nil)
	if err != nil {
		return err
	}
	beside, err := p.run(ctx, c, s, bound, nil)
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
