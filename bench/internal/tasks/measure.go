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
)

const (
	// seed makes the scenarios the same in every run.
	seed = 1

	contendedWork = 20 * time.Millisecond
	briefWork     = 5 * time.Millisecond
	wakePairs     = 15
	handOffs      = 12               // of each kind in a round
	wakeBound     = 45 * time.Second // more than a parked task's timer: it takes that when a wake-up was swallowed
)

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
	return nil
}

// contests returns all of them, in the order in which they run.
func (p part) contests() ([]contest, error) {
	share := func(n int) int { return p.Share(n, 2) }
	orders, from := GenerateOrders(share(5000), seed), "generated "
	if p.Orders != "" {
		var err error
		if orders, err = ReadOrdersFile(p.Orders); err != nil {
			return nil, err
		}
		from = "real "
	}
	byOrder, bySeller := ByOrder(orders, share(3000), contendedWork, seed), BySeller(orders, share(1500), briefWork, seed)
	byOrder.Title, bySeller.Title = from+byOrder.Title, from+bySeller.Title
	short := slices.Concat([]Contestant{Bare, Railtoken}, ByHand)
	hot := BesideAHotKey(share(2000), share(200))
	return []contest{
		p.contended(Repeat("K1", 1, share(500), briefWork, seed), All),
		p.contended(Repeat("K4", 4, share(250), contendedWork, seed), All),
		p.contended(Repeat("K20", 20, share(100), briefWork, seed), All),
		p.contended(byOrder, short), p.contended(bySeller, short),
		{
			"tasks-hotkey", hot, slices.Concat([]Contestant{Railtoken, RailtokenWait, RailtokenFIFO}, ByHand),
			func(Contestant) time.Duration { return 8*hot.Ideal() + 3*time.Second }, p.hotKey,
		},
		{
			"tasks-wake", Pairs(share(wakePairs)), slices.Concat([]Contestant{Railtoken, RailtokenParks}, ByHand),
			func(Contestant) time.Duration { return 10 * time.Second }, p.wakes,
		},
		{
			"tasks-wake", HandOffs(share(handOffs)), eachQueue,
			func(Contestant) time.Duration { return wakeBound }, p.wakes,
		},
	}, nil
}
