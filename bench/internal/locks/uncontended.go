package locks

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	p50   = "p50 µs"
	p99   = "p99 µs"
	rate  = "pairs/s"
	ahead = "railtoken ÷ this (pairs/s)"
)

// keysEach is how many keys a caller takes in turn. With one alone, a lock that gives its key back in the background would meet itself.
const keysEach = 64

// opened is a contestant that has been set up.
type opened struct {
	name  string
	locks contestant.Locker
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

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// addSample adds one slice to the contestant's row.
func addSample(r *report.Row, sample measure.Sample, prefix string) {
	if len(sample.Latencies) > 0 {
		r.Add(prefix+p50, micros(measure.Percentile(sample.Latencies, 0.5)))
		r.Add(prefix+p99, micros(measure.Percentile(sample.Latencies, 0.99)))
	} else { // the rounds must stay side by side
		r.Add(prefix+p50, math.NaN())
		r.Add(prefix+p99, math.NaN())
	}
	r.Add(prefix+rate, sample.Rate())
	if sample.Failed > 0 {
		r.Note = fmt.Sprintf("pairs failed (%d of %d in one slice), such as: %s", sample.Failed, sample.Failed+sample.Done,
			firstLine(sample.Err.Error()))
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
func uncontended(at place, kinds []contestant.Kind, callers int) func(context.Context, *bench, *report.Table) error {
	return func(ctx context.Context, b *bench, table *report.Table) error {
		site, err := b.lab.site(ctx, at)
		if err != nil {
			return err
		}
		all, end, err := openAll(kinds, site)
		if err != nil {
			return err
		}
		defer end()
		table.Columns = []string{p50, p99, rate}
		for _, o := range all {
			table.Row(o.name) // in this order
			_, left := o.pairs(ctx, measure.Load{Callers: callers, For: b.slice / 2})
			left()
		}
		for round := range b.reps {
			for _, i := range measure.Turns(len(all), round) {
				sample, left := all[i].pairs(ctx, measure.Load{Callers: callers, Warm: b.slice / 5, For: b.slice})
				left()
				addSample(table.Row(all[i].name), sample, "")
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		compare(table, ahead, rate)
		return nil
	}
}

// compare adds a column with our values of another one divided by those of each row.
func compare(table *report.Table, name, column string) {
	for _, row := range table.Rows {
		if row.Name != contestant.Railtoken {
			row.Values[name] = table.Against(column, contestant.Railtoken, row.Name)
		}
	}
	table.Columns = append(table.Columns, name)
}
