package locks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

const (
	p50  = "p50 µs"
	p99  = "p99 µs"
	rate = "pairs/s"
)

// keysEach is how many keys a caller takes in turn. With one alone, a lock that gives its key back in the background
// would meet itself.
const keysEach = 64

// opened is a contestant that has been set up.
type opened struct {
	contestant.Kind

	locks *contestant.Locker
	keys  [][keysEach]string // of each caller
	next  []int
	done  atomic.Int64 // pairs without an error
}

func openAll(kinds []contestant.Kind, at *site, callers int) (all []*opened, end func(), err error) {
	end = func() {
		for _, o := range all {
			_ = o.locks.Close()
		}
	}
	for _, kind := range kinds {
		locks, err := kind.Open(at.addrs[kind.Store])
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("%s: %w", kind.Name, err)
		}
		o := &opened{Kind: kind, locks: locks, keys: make([][keysEach]string, callers), next: make([]int, callers)}
		for i := range o.keys {
			for j := range o.keys[i] {
				o.keys[i][j] = kind.Name + ":" + strconv.Itoa(i) + ":" + strconv.Itoa(j)
			}
		}
		all = append(all, o)
	}
	return all, end, nil
}

// pairs puts the load on the contestant, each caller on keys of its own.
func (o *opened) pairs(ctx context.Context, load measure.Load) (sample measure.Sample, left func()) {
	return measure.Pairs(load, func(i int) error {
		o.next[i]++
		err := o.locks.Pair(ctx, o.keys[i][o.next[i]%keysEach])
		if err == nil {
			o.done.Add(1)
		}
		return err
	})
}

// addSample adds one slice to the contestant's row.
func addSample(t *results.Table, name string, sample measure.Sample, prefix string) {
	t.Add(name, prefix+p50, results.PercentileIn(time.Microsecond, sample.Latencies, 0.5))
	t.Add(name, prefix+p99, results.PercentileIn(time.Microsecond, sample.Latencies, 0.99))
	t.Add(name, prefix+rate, sample.Rate())
	if sample.Failed > 0 {
		t.Row(name).Note = fmt.Sprintf("pairs failed (%d of %d in one slice), such as: %s",
			sample.Failed, sample.Failed+sample.Done, firstLine(sample.Err.Error()))
	}
}

// firstLine leaves out what an error says of each server.
func firstLine(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " …"
	}
	return first
}

// uncontended measures contestants on keys that no other caller wants.
func uncontended(at place, kinds []contestant.Kind, callers int) func(context.Context, *bench, *results.Table) error {
	return func(ctx context.Context, b *bench, t *results.Table) error {
		site, err := b.lab.site(ctx, at)
		if err != nil {
			return err
		}
		all, end, err := openAll(b.lab.installed(t, kinds), site, callers)
		if err != nil {
			return err
		}
		defer end()
		long := b.span(slice)
		for _, o := range all {
			t.AddRow(o.Name) // in this order
			_, left := o.pairs(ctx, measure.Load{Callers: callers, For: long / 2})
			left()
		}
		return b.Each(ctx, len(all), func(_, i int) error {
			return all[i].turn(ctx, t, site, measure.Load{Callers: callers, Warm: long / 5, For: long})
		})
	}
}

// turn adds what a load gets done, and what each pair costs: allocations of this process when there is one caller, and
// processor time of this process and of all redis-servers.
func (o *opened) turn(ctx context.Context, t *results.Table, at *site, load measure.Load) error {
	var sample measure.Sample
	cost, err := usage.Meter{Servers: at.redis}.Measure(ctx, func() (int, error) {
		var left func()
		o.done.Store(0)
		sample, left = o.pairs(ctx, load)
		left()
		return int(o.done.Load()), nil
	})
	if err != nil {
		return err
	}
	addSample(t, o.Name, sample, "")
	if load.Callers == 1 {
		t.Add(o.Name, "allocations", cost.Allocations)
		t.Add(o.Name, "bytes", cost.Bytes)
	}
	t.Add(o.Name, "client µs", cost.Client)
	if o.Store == contestant.OnRedis {
		t.Add(o.Name, "server µs", cost.Server)
	}
	return nil
}
