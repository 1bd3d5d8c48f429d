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
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

// The columns of locks, all for a pair of acquire and release.
const (
	allocs     = "allocations"
	allocBytes = "bytes"
	clientCPU  = "client µs"
	serverCPU  = "server µs"
)

var lockColumns = []string{allocs, allocBytes, clientCPU, serverCPU}

const (
	callers   = 128
	warmPairs = 100
	pairs     = 2000
	warmTime  = 100 * time.Millisecond
	loadTime  = 500 * time.Millisecond
	ageBound  = 2 * time.Minute
	// afterFailure is how long a caller rests after a pair that failed.
	afterFailure = 10 * time.Millisecond
)

const locksText = "Each figure is that of a pair, acquire and release, of a key that nobody else wants. Allocations and allocated bytes are those of this" +
	" process while one caller makes one pair after another. Processor time is that of 128 callers with a key each: of this process, and of all" +
	" redis-servers together. Contestants are set up anew for each turn, with a TTL of 30 s; `floor` is `SET NX PX` and a compare-and-delete script by" +
	" the bare client. railtoken's figures include a fencing token, a renewal and the holder's name, which the others do not have."

// measureOne measures the locks on one server.
func measureOne(ctx context.Context, env report.Env, t *report.Table) error {
	one, err := start(ctx, env, 1)
	if err != nil {
		return err
	}
	defer stop(one)
	err = measureLocks(ctx, env, t, onRedis(contestant.OneNode), one)
	for _, column := range []string{clientCPU, serverCPU} {
		t.Compare(column+" / floor", column, contestant.NameFloor)
	}
	return err
}

// onRedis leaves out the kinds that lock elsewhere: these figures are those of Redis.
func onRedis(kinds []contestant.Kind) []contestant.Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k contestant.Kind) bool { return k.Store != contestant.OnRedis })
}

// measureLocks measures each kind on the servers, when these are old enough for it.
func measureLocks(ctx context.Context, env report.Env, t *report.Table, kinds []contestant.Kind, on []*server.Server) error {
	for _, kind := range kinds {
		t.Row(kind.Name) // in this order
		if err := await(ctx, env, kind.Aged, on); err != nil {
			return err
		}
	}
	for round := range env.Reps {
		env.Say("%s, round %d of %d", t.Title, round+1, env.Reps)
		for _, i := range measure.Turns(len(kinds), round) {
			if err := measureLock(ctx, env, t.Row(kinds[i].Name), kinds[i], on); err != nil {
				return fmt.Errorf("%s: %s: %w", t.Name, kinds[i].Name, err)
			}
		}
	}
	return nil
}

// await returns when the servers are old enough to be trusted.
func await(ctx context.Context, env report.Env, age time.Duration, on []*server.Server) error {
	if age == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ageBound)
	defer cancel()
	for _, s := range on {
		for {
			is, err := s.Age(ctx)
			if err != nil {
				return err
			}
			rest := age + time.Second - is // it tells whole seconds
			if rest <= 0 {
				break
			}
			env.Say("waiting %v until a restarted server would be trusted", rest)
			select {
			case <-time.After(rest):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func measureLock(ctx context.Context, env report.Env, row *report.Row, kind contestant.Kind, on []*server.Server) (err error) {
	var meter usage.Meter
	addrs := make([]string, len(on))
	for i, s := range on {
		addrs[i] = s.Addr()
		meter.Servers = append(meter.Servers, s.Probe())
	}
	lock, err := kind.Open(addrs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := measureAllocations(ctx, row, lock, part(pairs, env.Scale, 50)); err != nil {
		return err
	}
	return measureCPU(ctx, row, lock, meter, max(loadTime*time.Duration(env.Scale)/100, 50*time.Millisecond))
}

// measureAllocations makes one pair after another.
func measureAllocations(ctx context.Context, row *report.Row, lock contestant.Locker, n int) error {
	var before, after runtime.MemStats
	c := caller{lock: lock, first: "cost", name: "cost"}
	for i := range warmPairs + n {
		if i == warmPairs {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		if err := c.pair(ctx); err != nil {
			note(row, err)
			time.Sleep(afterFailure) // some do not ask a slow server again at once
		}
		if c.failed > (warmPairs+n)/10 {
			return errors.New(row.Note)
		}
	}
	runtime.ReadMemStats(&after)
	row.Add(allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
	row.Add(allocBytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
	return nil
}

// caller makes pairs with a key of its own.
type caller struct {
	lock contestant.Locker
	// first is its first key, name the present one.
	first, name string
	failed      int
}

// pair makes one. When it fails its key may stay locked, and the next one has another.
func (c *caller) pair(ctx context.Context) error {
	err := c.lock.Pair(ctx, c.name)
	if err != nil {
		c.failed++
		c.name = fmt.Sprintf("%s again %d", c.first, c.failed)
	}
	return err
}

// note tells of an error.
func note(row *report.Row, err error) {
	row.Note = fmt.Sprintf("some pairs failed: %v", err)
}

// measureCPU lets many callers make pairs.
func measureCPU(ctx context.Context, row *report.Row, lock contestant.Locker, meter usage.Meter, slice time.Duration) error {
	all := make([]caller, callers)
	for i := range all {
		name := fmt.Sprint("cost-", i)
		all[i] = caller{lock: lock, first: name, name: name}
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
	before, err := meter.Read(ctx)
	if err != nil {
		return err
	}
	sample, left := measure.Pairs(measure.Load{Callers: callers, For: slice}, pair)
	left()
	after, err := meter.Read(ctx)
	if err != nil {
		return err
	}
	if done.Load() == 0 {
		return fmt.Errorf("no pair was done: %w", sample.Err)
	}
	cost := after.Since(before, int(done.Load()))
	row.Add(clientCPU, cost.Micros(cost.Client))
	row.Add(serverCPU, cost.Micros(cost.ServerTime()))
	if sample.Failed > 0 {
		note(row, sample.Err)
	}
	return nil
}

// lockChart draws the processor time.
func lockChart(t *report.Table) *report.Chart {
	return &report.Chart{
		File: t.Name, Title: t.Title + ": processor time", YLabel: "µs for a pair",
		Groups: []report.Group{report.BarsOf("client", t, clientCPU), report.BarsOf("server", t, serverCPU)},
	}
}
