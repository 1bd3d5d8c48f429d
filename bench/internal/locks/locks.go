// Package locks measures locks of railtoken, of other libraries, of etcd and of PostgreSQL: on one server and on five, on
// keys that no other caller wants and on keys that many want, with a broken server, and with the servers 2 ms away.
package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	*lab
}

// span returns a slice as the scale says.
func (b *bench) span(d time.Duration) time.Duration { return b.Span(d, shortest) }

// block is scenarios in the same places, whose servers run together. Idle clusters must not disturb other blocks.
type block struct {
	group     string
	places    []place
	scenarios []scenario
}

// scenario is one table.
type scenario struct {
	name, title string
	measure     func(ctx context.Context, b *bench, t *results.Table, sites []*site) error
}

// Where contestants lock.
var (
	one, five       = place{servers: 1}, place{servers: 5}
	oneFar, fiveFar = place{servers: 1, far: true}, place{servers: 5, far: true}
	broken          = place{servers: 5, broken: true}
	stores          = place{stores: true}
)

// blocks in the order in which they run: the five servers age while the single one is measured.
var blocks = []block{
	{"locks-one", []place{one}, []scenario{alone(one, 1), alone(one, 16), alone(one, 128), alone(one, 1024)}},
	{"locks-five", []place{five}, []scenario{alone(five, 1), alone(five, 16), alone(five, 128), alone(five, 1024)}},
	{"locks-contended", []place{one}, []scenario{
		contended("C1", one, contention{1, 1}), contended("C4", one, contention{4, 1}),
		contended("C1x8", one, contention{1, 8}), contended("C4x8", one, contention{4, 8}),
	}},
	{"locks-contended", []place{five}, []scenario{contended("C1-five", five, contention{1, 1})}},
	{"locks-stores", []place{stores}, []scenario{
		{"S1", "PostgreSQL and etcd, 1 caller, keys that no other caller wants", pairs(Stores, 1, false)},
		{
			"S64", "PostgreSQL and etcd, 64 callers of one key, which each holder releases at once",
			pairs(WaitingStores, callersAll, true),
		},
	}},
	{"locks-outage", []place{five, broken}, []scenario{
		{"Dstop", "five servers, 1 caller, one server stopped by SIGSTOP", outages(false)},
		{"Dkill", "five servers, 1 caller, one server killed", outages(true)},
	}},
	{"locks-far", []place{oneFar}, []scenario{alone(oneFar, 1), alone(oneFar, 128)}},
	{"locks-far", []place{fiveFar}, []scenario{alone(fiveFar, 1), alone(fiveFar, 128)}},
}

// Measure runs the scenarios that env asks for, on servers of its own. What was measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) (err error) {
	b := &bench{env, &lab{env: env, fleets: map[place]fleet{}}}
	defer func() { err = errors.Join(err, b.end()) }()
	wanted := slices.DeleteFunc(slices.Clone(blocks), func(bl block) bool {
		return !slices.ContainsFunc(bl.scenarios, func(s scenario) bool { return env.Wants(bl.group, s.name) })
	})
	for _, bl := range wanted { // servers that must be old are started first, so that they age meanwhile
		for _, at := range bl.places {
			if _, err := b.fleet(ctx, at); err != nil {
				return err
			}
		}
	}
	for _, bl := range wanted {
		if err := b.block(ctx, bl); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) block(ctx context.Context, bl block) (err error) {
	defer func() { err = errors.Join(err, b.endStores()) }()
	sites := make([]*site, len(bl.places))
	for i, at := range bl.places {
		if sites[i], err = b.site(ctx, at); err != nil {
			return err
		}
	}
	var contests []measure.Contest
	for _, s := range bl.scenarios {
		contests = append(contests, measure.Contest{
			Group: bl.group, Name: s.name, Title: s.title,
			Measure: func(ctx context.Context, t *results.Table) error { return s.measure(ctx, b, t, sites) },
		})
	}
	return b.Env.Measure(ctx, contests...)
}

// alone is callers of keys that no other caller wants.
func alone(at place, callers int) scenario {
	letter, where, kinds := "A", "one server", OneNode
	if at.servers > 1 {
		letter, where, kinds = "B", "five servers", FiveNodes
	}
	name, how := fmt.Sprint(letter, callers), fmt.Sprintf("%d callers", callers)
	if callers == 1 {
		how = "1 caller"
	}
	if at.far {
		name, where = name+"-far", where+" 2 ms away"
		if callers > 1 {
			kinds = slices.Concat(kinds, Pooled(kinds, callers))
		}
	}
	return scenario{name, fmt.Sprintf("%s, %s, keys that no other caller wants", where, how), pairs(kinds, callers, false)}
}

// contended is callers of keys that others want too.
func contended(name string, at place, c contention) scenario {
	title := fmt.Sprintf("servers: %d, processes: %d, keys: %d; %d callers, each of which holds for 1 ms",
		at.servers, c.processes, c.keys, callersAll)
	return scenario{name, title, c.measure}
}
