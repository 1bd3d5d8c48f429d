// Package locks measures locks of railtoken, of other libraries, of etcd and of PostgreSQL: on one server and on five, on
// keys that no other caller wants and on keys that many want, with a broken server, and with the servers 2 ms away.
package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

// The slices of one contestant in a round when all of the work is done.
const (
	slice          = 500 * time.Millisecond
	contendedSlice = 1250 * time.Millisecond
	outageSlice    = 600 * time.Millisecond
	warmUp         = 250 * time.Millisecond // of callers that contend, besides
	shortest       = 10 * time.Millisecond
)

// bench is one run.
type bench struct {
	*measure.Env

	lab *lab
}

// span returns a slice as the scale says.
func (b *bench) span(d time.Duration) time.Duration { return b.Span(d, shortest) }

// scenario is one table.
type scenario struct {
	group, name, title string
	places             []place
	measure            func(ctx context.Context, b *bench, t *results.Table, sites []*site) error
}

// Where contestants lock.
var (
	one, five       = place{servers: 1}, place{servers: 5}
	oneFar, fiveFar = place{servers: 1, far: true}, place{servers: 5, far: true}
	healthyOrBroken = []place{five, {servers: 5, broken: true}}
	stores          = place{stores: true}
)

// scenarios in the order in which they run: the five servers age while the single one is measured.
var scenarios = []scenario{
	alone("locks-one", one, 1), alone("locks-one", one, 16), alone("locks-one", one, 128), alone("locks-one", one, 1024),
	alone("locks-five", five, 1), alone("locks-five", five, 16), alone("locks-five", five, 128), alone("locks-five", five, 1024),
	contended("C1", one, contention{1, 1}), contended("C4", one, contention{4, 1}),
	contended("C1x8", one, contention{1, 8}), contended("C4x8", one, contention{4, 8}),
	contended("C1-five", five, contention{1, 1}),
	{
		"locks-stores", "S1", "PostgreSQL and etcd, 1 caller, keys that no other caller wants", []place{stores},
		uncontended(contestant.Stores, 1),
	},
	{
		"locks-stores", "S64", "PostgreSQL and etcd, 64 callers of one key, which each holder releases at once", []place{stores},
		uncontended(contestant.OnOneKey(contestant.WaitingStores), callersAll),
	},
	{"locks-outage", "Dstop", "five servers, 1 caller, one server stopped by SIGSTOP", healthyOrBroken, outages(false)},
	{"locks-outage", "Dkill", "five servers, 1 caller, one server killed", healthyOrBroken, outages(true)},
	alone("locks-far", oneFar, 1), alone("locks-far", oneFar, 128),
	alone("locks-far", fiveFar, 1), alone("locks-far", fiveFar, 128),
}

// Measure runs the scenarios that env asks for, on servers of its own. What was measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) (err error) {
	b := &bench{env, &lab{env: env, fleets: map[place]fleet{}, sites: map[place]*site{}}}
	defer func() { err = errors.Join(err, b.lab.end()) }()
	wanted := slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !env.Wants(s.group, s.name) })
	for _, s := range wanted { // servers that must be old are started first, so that they age meanwhile
		for _, at := range s.places {
			if at.servers > 1 {
				if _, err := b.lab.fleet(ctx, at); err != nil {
					return err
				}
			}
		}
	}
	for i, s := range wanted {
		if i > 0 && wanted[i-1].group != s.group { // idle clusters must not disturb the others
			if err := b.lab.endStores(); err != nil {
				return err
			}
		}
		t := env.Table(s.name, s.title)
		if err := b.run(ctx, s, t); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) run(ctx context.Context, s scenario, t *results.Table) error {
	sites := make([]*site, len(s.places))
	for i, at := range s.places {
		var err error
		if sites[i], err = b.lab.site(ctx, at); err != nil {
			return err
		}
	}
	return s.measure(ctx, b, t, sites)
}

// alone is callers of keys that no other caller wants.
func alone(group string, at place, callers int) scenario {
	letter, where, kinds := "A", "one server", contestant.OneNode
	if at.servers > 1 {
		letter, where, kinds = "B", "five servers", contestant.FiveNodes
	}
	name, how := fmt.Sprint(letter, callers), fmt.Sprintf("%d callers", callers)
	if callers == 1 {
		how = "1 caller"
	}
	if at.far {
		name, where = name+"-far", where+" 2 ms away"
		if callers > 1 {
			kinds = slices.Concat(kinds, contestant.Pooled(kinds, callers))
		}
	}
	title := fmt.Sprintf("%s, %s, keys that no other caller wants", where, how)
	return scenario{group, name, title, []place{at}, uncontended(kinds, callers)}
}

// contended is callers of keys that others want too.
func contended(name string, at place, c contention) scenario {
	title := fmt.Sprintf("servers: %d, processes: %d, keys: %d; %d callers, each of which holds for 1 ms",
		at.servers, c.processes, c.keys, callersAll)
	return scenario{"locks-contended", name, title, []place{at}, c.measure}
}
