package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
)

const (
	p50  = "p50 us"
	p99  = "p99 us"
	rate = "pairs/s"
)

// keysEach is how many keys a caller takes in turn. With one alone, a lock that gives its key back in the background would meet itself.
const keysEach = 64

// opened is a contestant that has been set up.
type opened struct {
	name  string
	locks contestant.Locker
}

func openAll(kinds []contestant.Kind, addrs []string) (all []opened, end func(), err error) {
	end = func() {
		for _, o := range all {
			_ = o.locks.Close()
		}
	}
	for _, kind := range kinds {
		locks, err := kind.Open(addrs)
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

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// addSample adds one slice to the contestant's row.
func addSample(r *Row, sample measure.Sample, prefix string) {
	if len(sample.Latencies) > 0 {
		r.add(prefix+p50, micros(measure.Percentile(sample.Latencies, 0.5)))
		r.add(prefix+p99, micros(measure.Percentile(sample.Latencies, 0.99)))
	} else { // the rounds must stay side by side
		r.add(prefix+p50, math.NaN())
		r.add(prefix+p99, math.NaN())
	}
	r.add(prefix+rate, sample.Rate())
	if sample.Failed > 0 {
		r.Note = fmt.Sprintf("pairs failed, such as: %v", sample.Err)
	}
}

// uncontended measures contestants on keys that nobody else wants.
func (b *bench) uncontended(ctx context.Context, table *Table, kinds []contestant.Kind, addrs []string, callers int) error {
	all, end, err := openAll(kinds, addrs)
	if err != nil {
		return err
	}
	defer end()
	table.Columns = []string{rate}
	if callers == 1 {
		table.Columns = []string{p50, p99, rate}
	}
	for _, o := range all {
		table.row(o.name) // in this order
		_, left := o.pairs(ctx, measure.Load{Callers: callers, For: b.slice / 2})
		left()
	}
	for round := range b.reps {
		for _, i := range measure.Turns(len(all), round) {
			sample, left := all[i].pairs(ctx, measure.Load{Callers: callers, Warm: b.slice / 5, For: b.slice})
			left()
			addSample(table.row(all[i].name), sample, "")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
