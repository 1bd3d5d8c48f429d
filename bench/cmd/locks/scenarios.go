package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// bench is one run of the program.
type bench struct {
	reps, contendedReps, outageReps    int
	slice, contendedSlice, outageSlice time.Duration
	run                                *regexp.Regexp
	say                                func(format string, args ...any)

	single                 *server.Server
	whole, paused, crashed []*server.Server
}

// scenario is one table.
type scenario struct {
	name, title string
	measure     func(ctx context.Context, b *bench, t *Table) error
	targets     func(t *Table)
}

// scenarios in the order in which they run: the servers that are to be old age meanwhile.
var scenarios = []scenario{
	{"A1", "one node, 1 caller, keys that nobody else wants", uncontendedOn1(1), func(t *Table) {
		t.atMost(1.15, "p50 against the floor", t.against(p50, contestant.Railtoken, contestant.NameFloor))
	}},
	{"A16", "one node, 16 callers, keys that nobody else wants", uncontendedOn1(16), nil},
	{"A128", "one node, 128 callers, keys that nobody else wants", uncontendedOn1(128), func(t *Table) {
		t.atLeast(3.5, "pairs/s against redislock", t.against(rate, contestant.Railtoken, contestant.NameRedislock))
		t.atLeast(2, "pairs/s against rueidislock", t.against(rate, contestant.Railtoken, contestant.NameRueidislock))
	}},
	{"C1", "one node, 64 callers in one process on one key, held for 1 ms", contendedBy(1), func(t *Table) { contentionTargets(t, 0.95) }},
	{"C4", "one node, 64 callers in four processes on one key, held for 1 ms", contendedBy(4), func(t *Table) { contentionTargets(t, 0.90) }},
	{"B1", "five nodes, 1 caller, keys that nobody else wants", uncontendedOn5(1), func(t *Table) {
		t.atMost(0.8, "p50 against redsync", t.against(p50, contestant.Railtoken, contestant.NameRedsync))
	}},
	{"B128", "five nodes, 128 callers, keys that nobody else wants", uncontendedOn5(128), func(t *Table) {
		t.atLeast(6, "pairs/s against redsync", t.against(rate, contestant.Railtoken, contestant.NameRedsync))
		t.atLeast(3, "pairs/s against rueidislock", t.against(rate, contestant.Railtoken, contestant.NameRueidislock))
	}},
	{"Dstop", "five nodes, 1 caller, one node stopped by SIGSTOP", func(ctx context.Context, b *bench, t *Table) error {
		return b.outages(ctx, t, b.whole, b.paused, true)
	}, outageTargets},
	{"Dkill", "five nodes, 1 caller, one node killed", func(ctx context.Context, b *bench, t *Table) error {
		return b.outages(ctx, t, b.whole, b.crashed, false)
	}, outageTargets},
}

func uncontendedOn1(callers int) func(context.Context, *bench, *Table) error {
	return func(ctx context.Context, b *bench, t *Table) error {
		return b.uncontended(ctx, t, contestant.OneNode, []string{b.single.Addr()}, callers)
	}
}

func uncontendedOn5(callers int) func(context.Context, *bench, *Table) error {
	return func(ctx context.Context, b *bench, t *Table) error {
		return b.uncontended(ctx, t, contestant.FiveNodes, addrs(b.whole), callers)
	}
}

func contendedBy(processes int) func(context.Context, *bench, *Table) error {
	return func(ctx context.Context, b *bench, t *Table) error { return b.contended(ctx, t, b.single, processes) }
}

func contentionTargets(t *Table, least float64) {
	if !t.has(contestant.Railtoken) {
		return
	}
	values := t.row(contestant.Railtoken).Values
	t.atLeast(least, "share of the serial ideal", values[efficiency])
	t.atMost(1, "commands sent per acquisition", values[commands])
	t.atMost(3, "longest wait against the mean", values[unfairness])
}

func outageTargets(t *Table) {
	if !t.has(contestant.Railtoken) {
		return
	}
	ours := t.row(contestant.Railtoken)
	t.atMost(1.3, "p50 against healthy", ours.ratio(outage+p50, healthy+p50))
	t.atMost(4, "p99 against healthy", ours.ratio(outage+p99, healthy+p99))
}

// all runs the scenarios that were asked for.
func (b *bench) all(ctx context.Context, dir string) ([]*Table, error) {
	one, err := fleet(ctx, dir, 1)
	if err != nil {
		return nil, err
	}
	defer end(one)
	b.single = one[0]
	five := [3][]*server.Server{}
	defer func() {
		for _, servers := range five {
			end(servers)
		}
	}()
	for i := range five {
		if five[i], err = fleet(ctx, dir, 5); err != nil {
			return nil, err
		}
	}
	b.whole, b.paused, b.crashed = five[0], five[1], five[2]
	var tables []*Table
	aged := false
	for _, s := range scenarios {
		if !b.run.MatchString(s.name) {
			continue
		}
		if s.name[0] == 'B' || s.name[0] == 'D' {
			if !aged {
				for _, servers := range [][]*server.Server{b.whole, b.paused, b.crashed} {
					if err := b.awaitAge(ctx, servers); err != nil {
						return tables, err
					}
				}
			}
			aged = true
		}
		b.say("%s: %s", s.name, s.title)
		table := &Table{Name: s.name, Title: s.title}
		if err := s.measure(ctx, b, table); err != nil {
			return tables, fmt.Errorf("%s: %w", s.name, err)
		}
		if s.targets != nil {
			s.targets(table)
		}
		tables = append(tables, table)
	}
	return tables, nil
}
