package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

const (
	quietRate  = 300 // tasks a second
	floodRate  = 1500
	floodKeys  = 2
	floodWork  = 5 * time.Millisecond
	noisySlice = 3 * time.Second
	quietSeed  = 1
	floodSeed  = 2
)

// noisyTenant measures the tasks of a tenant with keys of their own, without and beside another tenant on the same
// server and queue, whose tasks arrive several times as fast as their few keys allow.
func noisyTenant(env *measure.Env) measure.Contest {
	p := part{env, withAFlood(env.Span(noisySlice, least)), bothWays}
	return p.contest("tasks-noisy", p.flooded)
}

// withAFlood returns the tasks of both tenants. Those of the flood are [Task.Aside].
func withAFlood(span time.Duration) Scenario {
	s := Scenario{Name: "noisy-tenant", Bare: Slots, Title: fmt.Sprintf(
		"%d tasks x %v a second with keys of their own beside a flood of %d x %v a second for %d keys, on %d slots",
		quietRate, openWork, floodRate, floodWork, floodKeys, Slots)}
	s = s.arriving(quietRate, span, quietSeed, func(n int) Task { return Task{Key: fmt.Sprint("quiet:", n), Work: openWork} })
	return s.arriving(floodRate, span, floodSeed, func(n int) Task {
		return Task{Key: fmt.Sprint("flood:", n%floodKeys), Work: floodWork, Aside: true}
	})
}

// flooded measures the quiet tenant without the flood and beside it.
func (p part) flooded(ctx context.Context, t *results.Table, c Contestant) error {
	finished := true
	for _, one := range []struct {
		prefix string
		Scenario
	}{{"alone: ", p.withoutAside()}, {"flooded: ", p.Scenario}} {
		got, err := p.run(ctx, c, one.Scenario, one.last()+grace, nil)
		if err != nil {
			return err
		}
		note(t.Row(c.Name), got, c)
		latenciesOf(one.Scenario, got).addTo(t, c.Name, one.prefix)
		t.Add(c.Name, one.prefix+"tasks/s", doneBy(one.Scenario, got, one.last())/(one.last()-lead).Seconds())
		if one.prefix == "flooded: " {
			t.Add(c.Name, "flood done", float64(got.AsideDone))
		}
		finished = finished && got.Finished
	}
	t.Add(c.Name, "finished", map[bool]float64{true: 1}[finished])
	return nil
}

// doneBy returns how many tasks that are not aside were done by a time.
func doneBy(s Scenario, got Result, by time.Duration) (n float64) {
	for _, t := range s.Tasks {
		if at := got.At[t.N]; !t.Aside && at > 0 && at <= by {
			n++
		}
	}
	return n
}
