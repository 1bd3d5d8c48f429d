// Package cost measures what tasks that do nothing cost: how many of them a process completes; whether the cost grows
// with more keys, with more waiters, and with reports and metrics; and how much memory of Redis keys and waiters take.
package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/middleware"
)

const (
	// parts is how many slices of each size are usually measured in a round.
	parts = 8
	// telemetryParts is that of cost-telemetry: the differences are far smaller than between two slices.
	telemetryParts = 40
	keyTasks       = 1000 // of a slice
	lives          = 60   // of a slice
	bound          = 2 * time.Minute
)

// series is a table whose rows are sizes of something, or settings.
type series struct {
	name, title string
	rows        []string
	// parts is how many slices of each row are measured in a round, the rows in turn: their medians are the round's
	// values. units are the tasks of a slice.
	parts, units int
	// open sets the i-th row up on a new server, for so many slices and one more.
	open func(ctx context.Context, at *server.Server, i int) (measure.Load, error)
}

// Measure measures all of it.
func Measure(ctx context.Context, env *measure.Env) error {
	return errors.Join(throughput(ctx, env), saturated(ctx, env), onCluster(ctx, env), apart(ctx, env), growth(ctx, env), memory(ctx, env))
}

// growth measures the growth over keys and over waiters, and the cost of telemetry.
func growth(ctx context.Context, env *measure.Env) error {
	tasks, lives := env.Share(keyTasks, 100), env.Share(lives, 10)
	depths := sizes(env.Scale, 1, 10, 100, 1000, 10_000)
	var contests []measure.Contest
	for _, s := range []series{
		overKeys(sizes(env.Scale, 10, 100, 1000, 10_000, 100_000), tasks),
		overWaiters("growth-waiters", "a task's life, over the tasks that wait, BestEffort", middleware.BestEffort, depths, lives),
		overWaiters("growth-waiters-fifo", "a task's life, over the tasks that wait, FIFO", middleware.FIFO, depths, lives),
		telemetry(tasks / 2),
	} {
		contests = append(contests, measure.Contest{
			Name: s.name, Title: s.title, Rows: s.rows, Measure: func(ctx context.Context, t *results.Table) error {
				return env.Each(ctx, 1, func(round, _ int) error { return s.round(ctx, env, t, round) })
			},
		})
	}
	return env.Measure(ctx, contests...)
}

// round sets all rows up, each on a server of its own, and measures them in turn, slice by slice.
func (s series) round(ctx context.Context, env *measure.Env, t *results.Table, round int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	n := len(s.rows)
	servers, err := server.StartAll(ctx, env.Dir, n)
	if err != nil {
		return err
	}
	defer server.KillAll(servers)
	loads, meters := make([]measure.Load, n), make([]measure.Meter, n)
	defer func() {
		for _, load := range loads {
			if load != nil {
				err = errors.Join(err, load.Close())
			}
		}
	}()
	for _, i := range measure.Turns(n, round) {
		if loads[i], err = s.open(ctx, servers[i], i); err != nil {
			return fmt.Errorf("%s: %w", s.rows[i], err)
		}
		sent, err := server.Learn(ctx, servers[i], func() error { return loads[i].Pass(ctx, s.units) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.rows[i], err)
		}
		meters[i] = measure.Meter{Servers: servers[i : i+1], Sent: sent}
	}
	costs := make([][]measure.Cost, n)
	for slice := range s.parts {
		for _, i := range measure.Turns(n, slice) {
			cost, err := meters[i].Slice(ctx, loads[i], s.units)
			if err != nil {
				return fmt.Errorf("%s: %w", s.rows[i], err)
			}
			costs[i] = append(costs[i], cost)
		}
	}
	for i, row := range s.rows {
		addCosts(t, row, costs[i])
	}
	return nil
}

// addCosts adds the medians of a round's slices, and the mean of their commands: some come once in several slices.
func addCosts(t *results.Table, row string, costs []measure.Cost) {
	for _, column := range []string{measure.Micros, measure.Commands, measure.ClientMicros, measure.ServerMicros} {
		var values results.Values
		for _, c := range costs {
			values = append(values, c[column])
		}
		if column == measure.Commands {
			t.Add(row, column, values.Mean())
		} else {
			t.Add(row, column, values.Median())
		}
	}
}

// names returns what the rows of sizes are called.
func names(sizes []int) []string {
	all := make([]string, len(sizes))
	for i, size := range sizes {
		all[i] = results.Grouped(fmt.Sprint(size), " ")
	}
	return all
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
