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
	computedWork  = 2 * time.Millisecond
	wakePairs     = 15
	handOffs      = 12               // of each kind in a round
	wakeBound     = 45 * time.Second // more than a parked task's timer: it takes that when a wake-up was swallowed
)

// Measure measures what workers get done when their tasks want the same keys, with railtoken and with what people use
// today.
func Measure(ctx context.Context, env *measure.Env) error {
	contests, err := contests(env)
	if err != nil {
		return err
	}
	return env.Measure(ctx, contests...)
}

// contests returns all of them, in the order in which they run.
func contests(env *measure.Env) ([]measure.Contest, error) {
	share := func(n int) int { return env.Share(n, 2) }
	orders, from := GenerateOrders(share(5000), seed), "generated "
	if env.Orders != "" {
		var err error
		if orders, err = ReadOrders(env.Orders); err != nil {
			return nil, fmt.Errorf("%s: %w", env.Orders, err)
		}
		from = "real "
	}
	byOrder, bySeller := ByOrder(orders, share(3000), contendedWork, seed), BySeller(orders, share(1500), briefWork, seed)
	byOrder.Title, bySeller.Title = from+byOrder.Title, from+bySeller.Title
	short := slices.Concat([]Contestant{Bare, Railtoken}, ByHand)
	hot := part{env, WithAHotKey("hotkey", "beside", share(2000), share(200)), slices.Concat(
		[]Contestant{Railtoken, RailtokenWait, RailtokenFIFO}, ByHand)}
	ahead := part{env, WithAHotKey("hot-ahead", "behind", share(1000), share(5000)), []Contestant{Bare, Railtoken, RailtokenFIFO}}
	pairs := part{env, Pairs(share(wakePairs)), slices.Concat([]Contestant{Railtoken}, ByHand)}
	hands := part{env, HandOffs(share(handOffs)), eachQueue}
	one, twenty := Repeat("K1", 1, share(500), briefWork, seed), Repeat("K20", 20, share(100), briefWork, seed)
	few := []Contestant{Bare, Railtoken, SleepRetry}
	onCluster := twenty
	onCluster.Name, onCluster.Title = "K20-lanes", fmt.Sprintf("%s, on one Redis and in %d lanes of %d masters", twenty.Title, lanes, masters)
	spread := part{env, Pairs(share(2 * wakePairs)), []Contestant{Railtoken, RailtokenLanes, RailtokenFIFO, RailtokenFIFOLanes}}
	spread.Name, spread.Title = "wake-lanes", fmt.Sprintf("%s, on one Redis and in %d lanes of %d masters", spread.Title, lanes, masters)
	return []measure.Contest{
		contended(env, one, All),
		contended(env, Repeat("K4", 4, share(250), contendedWork, seed), All),
		contended(env, twenty, All),
		contended(env, onCluster, []Contestant{Railtoken, RailtokenLanes, RailtokenFIFO, RailtokenFIFOLanes}),
		contended(env, byOrder, short), contended(env, bySeller, short),
		contended(env, one.busy(), few), contended(env, twenty.busy(), few), contended(env, byOrder.busy(), few),
		contended(env, one.computing(), few), contended(env, twenty.computing(), few),
		contended(env, byOrder.computing(), few),
		hot.contest("tasks-hotkey", hot.hotKey), ahead.contest("tasks-hotkey", ahead.hotKey),
		pairs.contest("tasks-wake", pairs.wakes), spread.contest("tasks-wake", spread.wakes), hands.contest("tasks-wake", hands.wakes),
		openLoop(env), noisyTenant(env),
	}, nil
}
