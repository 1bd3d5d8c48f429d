// Package growth measures whether the cost of a task stays the same with more keys, with more tasks waiting for its key,
// and with reports and metrics.
package growth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/lockall"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	// parts is how many slices of each size are usually measured in a round.
	parts    = 8
	keySlots = 8
	keyTasks = 1000 // of a slice
	lives    = 60   // of a slice
	bound    = 2 * time.Minute
)

// series is a table whose rows are sizes of something, or numbers of settings.
type series struct {
	name, title string
	sizes       []int
	// parts is how many slices of each size are measured in a round, the sizes in turn: their medians are the round's
	// values.
	parts int
	// open sets one size up on a new server.
	open func(ctx context.Context, at *server.Server, size int) (bench, error)
	row  func(size int) string // names a size
}

// bench is one size that is set up.
type bench interface {
	// Slice measures a part.
	Slice(ctx context.Context) (usage.Cost, error)
	Close() error
}

// Measure measures the growth over keys and over waiters. What was measured before an error stays.
func Measure(ctx context.Context, env *measure.Env) error {
	tasks, lives := env.Share(keyTasks, 100), env.Share(lives, 10)
	chains := func(order middleware.Order) func(context.Context, *server.Server, int) (bench, error) {
		return func(ctx context.Context, at *server.Server, size int) (bench, error) {
			return startChain(ctx, at, order, size, lives)
		}
	}
	depths := sizes(env.Scale, 1, 10, 100, 1000, 10_000)
	for _, s := range []series{
		{
			"growth-keys", "a task that does nothing, over the number of keys", sizes(env.Scale, 10, 100, 1000, 10_000, 100_000), parts,
			func(ctx context.Context, at *server.Server, size int) (bench, error) {
				names := lockall.Keys(size)
				err := lockall.Each(ctx, at.Addr(), names, locking.SingleOptions{}, locking.Options{}, lockall.GiveBack(ctx))
				if err != nil {
					return nil, err
				}
				return startCrew(ctx, at, worker.Config{}, spread(names, (1+parts)*tasks), parts, tasks)
			},
			name,
		},
		{"growth-waiters", "a task's life, over the tasks that wait, BestEffort", depths, parts, chains(middleware.BestEffort), name},
		{"growth-waiters-fifo", "a task's life, over the tasks that wait, FIFO", depths, parts, chains(middleware.FIFO), name},
		telemetry(tasks),
	} {
		if !env.Wants(s.name) {
			continue
		}
		t := env.Table(s.name, s.title)
		for _, size := range s.sizes {
			t.AddRow(s.row(size)) // in this order
		}
		for round := range env.Rounds {
			if err := s.round(ctx, env, t, round); err != nil {
				return fmt.Errorf("%s: round %d: %w", s.name, round+1, err)
			}
		}
	}
	return nil
}

// round sets all sizes up, each on a server of its own, and measures them in turn, slice by slice.
func (s series) round(ctx context.Context, env *measure.Env, t *results.Table, round int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	servers, err := server.StartAll(ctx, env.Dir, len(s.sizes))
	if err != nil {
		return err
	}
	defer server.KillAll(servers)
	benches := make([]bench, len(s.sizes))
	defer func() {
		for _, b := range benches {
			if b != nil {
				err = errors.Join(err, b.Close())
			}
		}
	}()
	for _, i := range measure.Turns(len(s.sizes), round) {
		b, err := s.open(ctx, servers[i], s.sizes[i])
		if err != nil {
			return fmt.Errorf("%d: %w", s.sizes[i], err)
		}
		benches[i] = b
	}
	costs := make([][]usage.Cost, len(s.sizes))
	for slice := range s.parts {
		for _, i := range measure.Turns(len(s.sizes), slice) {
			cost, err := benches[i].Slice(ctx)
			if err != nil {
				return fmt.Errorf("%d: %w", s.sizes[i], err)
			}
			costs[i] = append(costs[i], cost)
		}
	}
	for i, size := range s.sizes {
		addCosts(t, s.row(size), costs[i])
	}
	return nil
}

// addCosts adds the medians of a round's slices, and the mean of their commands: some come once in several slices.
func addCosts(t *results.Table, row string, costs []usage.Cost) {
	for _, column := range []struct {
		name string
		of   func(usage.Cost) float64
		sum  func(results.Values) float64
	}{
		{"µs", func(c usage.Cost) float64 { return c.Micros }, results.Values.Median},
		{"commands", func(c usage.Cost) float64 { return c.Commands }, results.Values.Mean},
		{"client µs", func(c usage.Cost) float64 { return c.Client }, results.Values.Median},
		{"server µs", func(c usage.Cost) float64 { return c.Server }, results.Values.Median},
	} {
		var values results.Values
		for _, c := range costs {
			values = append(values, column.of(c))
		}
		t.Add(row, column.name, column.sum(values))
	}
}

// name is what the row of a size is called.
func name(size int) string {
	text := fmt.Sprint(size)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// sizes returns the sizes that are left at a scale, at least two.
func sizes(scale int, all ...int) []int {
	most := all[len(all)-1] * scale / 100
	n := 2
	for n < len(all) && all[n] <= most {
		n++
	}
	return all[:n]
}

// spread returns at most so many of the names, at equal distances.
func spread(names []string, most int) []string {
	if len(names) <= most {
		return names
	}
	some := make([]string, most)
	for i := range some {
		some[i] = names[i*len(names)/most]
	}
	return some
}
