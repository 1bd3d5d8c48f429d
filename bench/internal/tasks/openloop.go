package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

const (
	openSlots  = 8 // few, so that the slots are the limit and not the processors
	openWork   = 2 * time.Millisecond
	openSlice  = 2 * time.Second
	backlog    = 6000 // tasks of which the capacity is measured
	hotKeys    = 4
	hotEach    = 5 // one task in so many has a hot key
	commonLoad = 50
)

// openLoads are the loads of the arrivals, in percent of what the contestant can do.
var openLoads = []int{50, 80, 95}

// bothWays are the contestants of tables that show keys that are recorded and keys that are found.
var bothWays = []Contestant{Bare, SleepRetry, Retry, RailtokenRecorded, RailtokenFound}

// mixed is the n-th task of those of which some have a hot key, and the others have one of their own.
func mixed(n int) Task {
	if n%hotEach == 0 {
		return Task{Key: fmt.Sprint("hot:", n/hotEach%hotKeys), Work: openWork}
	}
	return Task{Key: fmt.Sprint("own:", n), Work: openWork}
}

// openLoop measures how long tasks take that arrive by the clock, not when others are done.
func openLoop(env *measure.Env) measure.Contest { return openLoopOf(env, bothWays) }

func openLoopOf(env *measure.Env, contestants []Contestant) measure.Contest {
	o := open{part{env, Scenario{Name: "open-loop"}, contestants}}
	c := o.contest("tasks-open", nil)
	c.Title = fmt.Sprintf("tasks x %v that arrive at random times, on %d slots; one in %d has one of %d hot keys, the others have keys of their own",
		openWork, openSlots, hotEach, hotKeys)
	c.Measure = func(ctx context.Context, t *results.Table) error {
		for round := range o.Rounds {
			if err := o.round(ctx, t, round); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		return nil
	}
	return c
}

// open is the contestants that take part.
type open struct{ part }

// round measures each contestant at shares of its own capacity, and then all of them at the same rate: a share of the
// smallest capacity.
func (o open) round(ctx context.Context, t *results.Table, round int) error {
	finished, slowest := make([]bool, len(o.contestants)), math.Inf(1)
	for _, i := range measure.Turns(len(o.contestants), round) {
		c := o.contestants[i]
		capacity, err := o.capacity(ctx, c)
		if err != nil {
			return err
		}
		t.Add(c.Name, "capacity/s", capacity)
		slowest, finished[i] = min(slowest, capacity), true
		for _, load := range openLoads {
			rate := capacity * float64(load) / 100
			all, err := o.at(ctx, t, c, rate, fmt.Sprintf("%d %%: ", load), uint64(round))
			if err != nil {
				return err
			}
			finished[i] = finished[i] && all
		}
	}
	for _, i := range measure.Turns(len(o.contestants), round) {
		c, rate := o.contestants[i], slowest*commonLoad/100
		t.Add(c.Name, "same rate/s", rate)
		all, err := o.at(ctx, t, c, rate, "same rate: ", uint64(round))
		if err != nil {
			return err
		}
		t.Add(c.Name, "finished", map[bool]float64{true: 1}[finished[i] && all])
	}
	return nil
}

// capacity returns how many tasks of the kind a contestant does in a second while there are always more.
func (o open) capacity(ctx context.Context, c Contestant) (float64, error) {
	s := Scenario{Name: o.Name + ", capacity", Slots: openSlots, Bare: openSlots, Producers: arrivalProducers}
	for n := range o.Share(backlog, 200) {
		s = s.with(mixed(n))
	}
	got, err := o.run(ctx, c, s, 3*s.Ideal()+grace, nil)
	if err != nil {
		return 0, err
	}
	rate := steadyRate(got)
	if math.IsNaN(rate) {
		return 0, errors.New(c.Name + " has done too little to tell its capacity")
	}
	return rate, nil
}

// at measures a contestant at a rate, and reports whether it has done all tasks.
func (o open) at(ctx context.Context, t *results.Table, c Contestant, rate float64, prefix string, seed uint64) (finished bool, err error) {
	s := Scenario{Name: fmt.Sprintf("%s, %s%.0f/s", o.Name, prefix, rate), Slots: openSlots, Bare: openSlots}
	s = s.arriving(rate, o.Span(openSlice, least), seed, mixed)
	got, err := o.run(ctx, c, s, s.last()+grace, nil)
	if err != nil {
		return false, err
	}
	note(t.Row(c.Name), got, c)
	latenciesOf(s, got).addTo(t, c.Name, prefix)
	return got.Finished, nil
}
