package locks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
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
	name  string
	locks *contestant.Locker
}

func openAll(kinds []contestant.Kind, at *site) (all []opened, end func(), err error) {
	end = func() {
		for _, o := range all {
			_ = o.locks.Close()
		}
	}
	for _, kind := range kinds {
		locks, err := kind.Open(at.addrs(kind))
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("%s: %w", kind.Name, err)
		}
		all = append(all, opened{kind.Name, locks})
	}
	return all, end, nil
}

// pairs puts the load on the contestant, each caller on keys of its own.
func (o opened) pairs(ctx context.Context, load measure.Load) (sample measure.Sample, left func()) {
	keys := make([][keysEach]string, load.Callers)
	for i := range keys {
		for j := range keys[i] {
			keys[i][j] = o.name + ":" + strconv.Itoa(i) + ":" + strconv.Itoa(j)
		}
	}
	next := make([]int, load.Callers)
	return measure.Pairs(load, func(i int) error {
		next[i]++
		return o.locks.Pair(ctx, keys[i][next[i]%keysEach])
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

// uncontended measures contestants on keys that nobody else wants.
func uncontended(at place, kinds []contestant.Kind, callers int) func(context.Context, *bench, *results.Table) error {
	return func(ctx context.Context, b *bench, t *results.Table) error {
		site, err := b.lab.site(ctx, at)
		if err != nil {
			return err
		}
		all, end, err := openAll(kinds, site)
		if err != nil {
			return err
		}
		defer end()
		long := b.span(slice)
		for _, o := range all {
			t.AddRow(o.name) // in this order
			_, left := o.pairs(ctx, measure.Load{Callers: callers, For: long / 2})
			left()
		}
		return b.Each(ctx, len(all), func(_, i int) error {
			sample, left := all[i].pairs(ctx, measure.Load{Callers: callers, Warm: long / 5, For: long})
			left()
			addSample(t, all[i].name, sample, "")
			return nil
		})
	}
}
