package tasks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	colCPU       = "CPU µs/task"
	colCPUOfBare = "CPU of bare"
)

// noop measures tasks that do nothing, each with a key of its own: what the lock costs those who never need it.
func (p *part) noop(ctx context.Context) (*report.Section, error) {
	const name = "tasks-noop"
	if !p.wants(name, "noop") {
		return nil, nil //nolint:nilnil // no section was asked for
	}
	n := p.share(5000)
	scenario := Repeat("noop", n, 1, 0, seed)
	contestants := slices.Concat([]Contestant{Bare, BareDefault}, Ours, []Contestant{SleepRetry, SleepRedsync, Semaphore})
	s := &report.Section{Name: name, Title: "What a lock costs that nobody else wants", Text: fmt.Sprintf(
		`%d tasks that do nothing, each with a key of its own, on %d slots: nobody waits for anybody, so all that differs is the overhead.
This is the worst case; beside a task of a few milliseconds it vanishes. CPU is the processor time of the worker's process for each task,
without that of the redis-server. `+"`%s`"+` shows that asynq's interval does not matter while there is work.
`, n, Slots, BareDefault.Name)}
	t := &report.Table{
		Name: "noop", Title: fmt.Sprintf("%d tasks that do nothing on %d slots", n, Slots),
		Columns: []string{colRate, colOfBare, colCPU, colCPUOfBare},
	}
	s.Tables = []*report.Table{t}
	p.say("noop: %s", t.Title)
	bound := func(Contestant, Scenario) Limits { return Limits{Bound: 30 * time.Second, Retries: retries} }
	err := p.simple(ctx, t, scenario, contestants, bound, func(r *report.Row, got Result) {
		r.Add(colRate, got.Rate())
		r.Add(colCPU, got.CPUPerTask())
	})
	for _, r := range t.Rows {
		r.Values[colOfBare] = t.Against(colRate, r.Name, Bare.Name)
		r.Values[colCPUOfBare] = t.Against(colCPU, r.Name, Bare.Name)
	}
	s.Charts = []*report.Chart{{
		File: "tasks-noop", Title: "Tasks that do nothing: throughput as a share of bare asynq", YLabel: colOfBare,
		Groups: []report.Group{report.BarsOf("no-op", t, colOfBare)},
	}}
	return s, in(t.Name, err)
}

// simple measures one scenario without counting commands.
func (p *part) simple(ctx context.Context, t *report.Table, s Scenario, contestants []Contestant, bound func(Contestant, Scenario) Limits,
	add func(*report.Row, Result),
) error {
	var turns []*turn
	results := map[string][]Result{}
	for _, c := range contestants {
		r := t.Row(c.Name)
		turns = append(turns, &turn{contestant: c, scenario: s, limits: bound(c, s), add: func(got Result) {
			results[c.Name] = append(results[c.Name], got)
			addFinished(r, got.Finished)
			add(r, got)
		}})
	}
	err := p.rounds(ctx, turns)
	for _, c := range contestants {
		note(t.Row(c.Name), c, results[c.Name])
	}
	return err
}
