package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

// keysEach is how many keys a caller takes in turn. With one alone, a lock that gives its key back in the background
// would meet itself.
const keysEach = 64

// opened is a contestant that has been set up.
type opened struct {
	Kind

	locks *Locker
	lock  Lock
	keys  [][keysEach]string // of each caller
	next  []int
	done  atomic.Int64 // pairs without an error
}

func openAll(kinds []Kind, at *site, callers int) (all []*opened, end func(), err error) {
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
		o := &opened{
			Kind: kind, locks: locks, lock: locks.Try, keys: make([][keysEach]string, callers), next: make([]int, callers),
		}
		for i := range o.keys {
			for j := range o.keys[i] {
				o.keys[i][j] = kind.Name + ":" + strconv.Itoa(i) + ":" + strconv.Itoa(j)
			}
		}
		all = append(all, o)
	}
	return all, end, nil
}

// pairs lets callers acquire and release, each on keys of its own.
func (o *opened) pairs(ctx context.Context, w measure.Window) (sample measure.Sample, left func()) {
	return measure.Callers(len(o.keys), w, func(i int, got func()) error {
		o.next[i]++
		if err := o.lock(ctx, o.keys[i][o.next[i]%keysEach], func() {}); err != nil {
			return err
		}
		got()
		o.done.Add(1)
		return nil
	})
}

// addSample adds one slice to the contestant's row.
func addSample(t *results.Table, name string, sample measure.Sample, long time.Duration, prefix string) {
	sorted := sample.Sorted()
	t.Add(name, prefix+"p50 µs", results.PercentileIn(time.Microsecond, sorted, 0.5))
	t.Add(name, prefix+"p99 µs", results.PercentileIn(time.Microsecond, sorted, 0.99))
	t.Add(name, prefix+"pairs/s", float64(sample.Done())/long.Seconds())
	if sample.Failed > 0 {
		t.Row(name).Note = fmt.Sprintf("pairs failed (%d of %d in one slice), such as: %s",
			sample.Failed, sample.Failed+sample.Done(), firstLine(sample.Err))
	}
}

// firstLine leaves out what an error says of each server.
func firstLine(text string) string { return strings.SplitN(text, "\n", 2)[0] }

// onOneKey waits for one and the same key, so that callers hand it to each other.
func onOneKey(wait Lock) Lock {
	var held atomic.Int32
	return func(ctx context.Context, _ string, hold func()) error {
		overlap := false
		err := wait(ctx, "one", func() {
			overlap = held.Add(1) > 1
			hold()
			held.Add(-1)
		})
		if overlap {
			return errors.New("holds OVERLAPPED")
		}
		return err
	}
}

// pairs measures contestants on keys that no other caller wants, or on one that all want.
func pairs(kinds []Kind, callers int, oneKey bool) func(context.Context, *bench, *results.Table, []*site) error {
	return func(ctx context.Context, b *bench, t *results.Table, sites []*site) error {
		all, end, err := openAll(b.installed(t, kinds), sites[0], callers)
		if err != nil {
			return err
		}
		defer end()
		long := b.span(slice)
		for _, o := range all {
			t.AddRow(o.Name) // in this order
			if oneKey {
				o.lock = onOneKey(o.locks.Wait)
			}
			_, left := o.pairs(ctx, measure.After(0, long/2))
			left()
		}
		return b.Each(ctx, len(all), func(_, i int) error { return all[i].turn(ctx, t, sites[0], long) })
	}
}

// turn adds what a load gets done, and what each pair costs: allocations of this process when there is one caller, and
// processor time of this process and of all redis-servers.
func (o *opened) turn(ctx context.Context, t *results.Table, at *site, long time.Duration) error {
	var sample measure.Sample
	cost, err := measure.Meter{Servers: at.redis}.Measure(ctx, func() (int, error) {
		o.done.Store(0)
		var left func()
		sample, left = o.pairs(ctx, measure.After(long/5, long))
		left()
		return int(o.done.Load()), nil
	})
	if err != nil {
		return err
	}
	addSample(t, o.Name, sample, long, "")
	columns := []string{measure.ClientMicros}
	if len(o.keys) == 1 {
		columns = []string{measure.Allocations, measure.Bytes, measure.ClientMicros}
	}
	if o.Store == OnRedis {
		columns = append(columns, measure.ServerMicros)
	}
	for _, column := range columns {
		t.Add(o.Name, column, cost[column])
	}
	return nil
}
