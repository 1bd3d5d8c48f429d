// Package cost measures what a lock costs beside the time that it takes: allocations, processor time of both sides, and
// memory of Redis.
package cost

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

const (
	callers   = 128
	warmPairs = 100
	pairs     = 2000
	warmTime  = 100 * time.Millisecond
	loadTime  = 500 * time.Millisecond
	// afterFailure is how long a caller rests after a pair that failed: some do not ask a slow server again at once.
	afterFailure = 10 * time.Millisecond
)

// Measure measures locks on one server and on five, and the memory of locks and of tasks that wait. The five servers
// must have run for half a minute, which is waited for. What was measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) error {
	const five, memory = "cost-five", "cost-memory"
	var many []*server.Server
	defer func() { server.KillAll(many) }()
	if env.Wants("cost-locks", five) { // first, because they must age
		var err error
		if many, err = server.StartAll(ctx, env.Dir, 5); err != nil {
			return err
		}
	}
	if env.Wants("cost-locks", "cost-one") {
		one, err := server.StartAll(ctx, env.Dir, 1)
		if err == nil {
			t := env.Table("cost-one", "acquire and release on one server")
			err = measureLocks(ctx, env, t, contestant.OneNode, one)
			server.KillAll(one)
		}
		if err != nil {
			return err
		}
	}
	if env.Wants(memory) {
		if err := measureMemory(ctx, env, env.Table(memory, "memory of Redis")); err != nil {
			return err
		}
	}
	if len(many) == 0 {
		return nil
	}
	return measureLocks(ctx, env, env.Table(five, "acquire and release on five servers"), contestant.FiveNodes, many)
}

// measureLocks measures each kind that locks on Redis, when the servers are old enough for it.
func measureLocks(ctx context.Context, env *measure.Env, t *results.Table, kinds []contestant.Kind, on []*server.Server) error {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k contestant.Kind) bool { return k.Store != contestant.OnRedis })
	for _, kind := range kinds {
		t.AddRow(kind.Name) // in this order
		if err := server.AwaitAge(ctx, on, kind.Aged, env.Report); err != nil {
			return err
		}
	}
	return env.Each(ctx, len(kinds), func(_, i int) error {
		l := load{t: t, row: t.Row(kinds[i].Name), meter: usage.Meter{Servers: on}}
		if err := l.measure(ctx, env, kinds[i]); err != nil {
			return fmt.Errorf("%s: %s: %w", t.Name, kinds[i].Name, err)
		}
		return nil
	})
}

// load is one contestant's turn, which it is set up for anew.
type load struct {
	t     *results.Table
	row   *results.Row
	meter usage.Meter
	lock  *contestant.Locker
}

func (l *load) measure(ctx context.Context, env *measure.Env, kind contestant.Kind) (err error) {
	if l.lock, err = kind.Open(server.Addrs(l.meter.Servers)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.lock.Close()) }()
	if err := l.allocations(ctx, env.Share(pairs, 50)); err != nil {
		return err
	}
	return l.processorTime(ctx, env.Span(loadTime, 50*time.Millisecond))
}

// allocations makes one pair after another.
func (l *load) allocations(ctx context.Context, n int) error {
	var before, after runtime.MemStats
	c := caller{lock: l.lock, first: "cost", key: "cost"}
	for i := range warmPairs + n {
		if i == warmPairs {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		if err := c.pair(ctx); err != nil {
			l.row.Note = fmt.Sprintf("some pairs failed: %v", err)
			time.Sleep(afterFailure)
		}
		if c.failed > (warmPairs+n)/10 {
			return errors.New(l.row.Note)
		}
	}
	runtime.ReadMemStats(&after)
	l.t.Add(l.row.Name, "allocations", float64(after.Mallocs-before.Mallocs)/float64(n))
	l.t.Add(l.row.Name, "bytes", float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
	return nil
}

// processorTime lets many callers make pairs.
func (l *load) processorTime(ctx context.Context, slice time.Duration) error {
	all := make([]caller, callers)
	for i := range all {
		key := fmt.Sprint("cost-", i)
		all[i] = caller{lock: l.lock, first: key, key: key}
	}
	var done atomic.Int64
	pair := func(i int) error {
		err := all[i].pair(ctx)
		if err == nil {
			done.Add(1)
		}
		return err
	}
	_, left := measure.Pairs(measure.Load{Callers: callers, For: warmTime}, pair)
	left()
	done.Store(0)
	before, err := l.meter.Read(ctx)
	if err != nil {
		return err
	}
	sample, left := measure.Pairs(measure.Load{Callers: callers, For: slice}, pair)
	left()
	after, err := l.meter.Read(ctx)
	if err != nil {
		return err
	}
	if done.Load() == 0 {
		return fmt.Errorf("no pair was done: %w", sample.Err)
	}
	cost := after.Since(before, int(done.Load()))
	l.t.Add(l.row.Name, "client µs", cost.Client)
	l.t.Add(l.row.Name, "server µs", cost.Server)
	if sample.Failed > 0 {
		l.row.Note = fmt.Sprintf("some pairs failed: %v", sample.Err)
	}
	return nil
}

// caller makes pairs with a key of its own.
type caller struct {
	lock       *contestant.Locker
	first, key string // its first key, and the present one
	failed     int
}

// pair makes one. When it fails its key may stay locked, and the next one has another.
func (c *caller) pair(ctx context.Context) error {
	err := c.lock.Pair(ctx, c.key)
	if err != nil {
		c.failed++
		c.key = fmt.Sprintf("%s again %d", c.first, c.failed)
	}
	return err
}
