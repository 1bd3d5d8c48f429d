// Package cost measures what a lock costs beside the time that it takes: allocations, processor time of both sides, and memory of Redis.
package cost

import (
	"context"
	"errors"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const nodes = 5

// Measure measures locks on one server and on five, and the memory of locks and of tasks that wait. It returns what it has measured also with
// an error. The five servers must have run for half a minute, which is waited for.
func Measure(ctx context.Context, env report.Env) (sections []*report.Section, err error) {
	section := &report.Section{Name: "cost-locks", Title: "What does a lock cost?", Text: locksText}
	memory := &report.Section{Name: "cost-memory", Title: "How much memory does it take?", Text: memoryText}
	one := &report.Table{Name: "cost-one", Title: "Acquire and release on one server", Columns: lockColumns}
	five := &report.Table{Name: "cost-five", Title: "Acquire and release on five servers", Columns: lockColumns}
	held := &report.Table{Name: "cost-memory", Title: "Memory of Redis", Columns: []string{bytesEach, keysEach}}

	var many []*server.Server
	defer func() { stop(many) }()
	if wanted(env, section, five) { // first, as they must age
		if many, err = start(ctx, env, nodes); err != nil {
			return nil, err
		}
	}
	steps := []struct {
		section *report.Section
		table   *report.Table
		do      func() error
	}{
		{section, one, func() error { return measureOne(ctx, env, one) }},
		{memory, held, func() error { return measureMemory(ctx, env, held) }},
		{section, five, func() error { return measureLocks(ctx, env, five, onRedis(contestant.FiveNodes), many) }},
	}
	for _, step := range steps {
		if !wanted(env, step.section, step.table) {
			continue
		}
		err = step.do()
		if len(step.section.Tables) == 0 {
			sections = append(sections, step.section)
		}
		step.section.Tables = append(step.section.Tables, step.table)
		if err != nil {
			return sections, err
		}
	}
	for _, t := range section.Tables {
		section.Charts = append(section.Charts, lockChart(t))
	}
	return sections, nil
}

// wanted reports whether the table is to be measured.
func wanted(env report.Env, section *report.Section, table *report.Table) bool {
	return env.Run == nil || env.Run.MatchString(section.Name) || env.Run.MatchString(table.Name)
}

func start(ctx context.Context, env report.Env, n int) (all []*server.Server, err error) {
	for range n {
		s, err := server.Start(ctx, env.Dir)
		if err != nil {
			stop(all)
			return nil, errors.Join(err, ctx.Err())
		}
		all = append(all, s)
	}
	return all, nil
}

func stop(all []*server.Server) {
	for _, s := range all {
		s.Kill()
	}
}

// part returns so many percent of n, and at least the least.
func part(n, scale, least int) int { return max(n*scale/100, least) }
