// Package growth measures whether what a task costs stays the same when there is more of something: keys, tasks that wait for one key, slots,
// workers.
package growth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
	"github.com/railtoken/railtoken/worker"
)

const (
	// steady is how much the cost may grow from the cheapest size to the dearest.
	steady = 1.2
	// bound is how long one run may take.
	bound = 2 * time.Minute
	queue = "default"
)

// The columns of costs.
const (
	took     = "µs"
	rate     = "tasks/s"
	commands = "commands"
	client   = "client µs"
	servers  = "server µs"
)

// inTurns ends the texts.
const inTurns = "All sizes are set up at the same time, each on a redis-server of its own, and measured in turn, slice by slice: a round's value is the" +
	" median of its slices, and growth is judged within a round."

var costs = []string{took, commands, client, servers}

// Measure measures the growth over keys, over waiters, over slots and over workers. It returns what it has measured also with an error.
func Measure(ctx context.Context, env report.Env) ([]*report.Section, error) {
	var sections []*report.Section
	for _, part := range []func(context.Context, report.Env) (*report.Section, error){measureKeys, measureWaiters, measureWorkers} {
		section, err := part(ctx, env)
		if section != nil && len(section.Tables) > 0 {
			sections = append(sections, section)
		}
		if err != nil {
			return sections, err
		}
	}
	return sections, nil
}

// series is a table whose rows are sizes of something.
type series struct {
	*report.Table
	// what is counted, such as "keys".
	what  string
	sizes []int
	// slices is in how many parts each size is measured in a round, the sizes in turn: their medians are the round's values.
	slices int
	// open sets one size up on a new server.
	open func(ctx context.Context, at *server.Server, size int) (bench, error)
}

// bench is one size that is set up.
type bench interface {
	// slice measures a part and returns the values of columns.
	slice(ctx context.Context) (map[string]float64, error)
	close() error
}

// wanted reports whether the table is to be measured.
func wanted(env report.Env, section string, table *report.Table) bool {
	return env.Run == nil || env.Run.MatchString(section) || env.Run.MatchString(table.Name)
}

// measure measures all sizes in each round.
func (s series) measure(ctx context.Context, env report.Env) error {
	for _, size := range s.sizes {
		s.Row(name(size)) // in this order
	}
	for round := range env.Reps {
		env.Say("%s, round %d of %d", s.Title, round+1, env.Reps)
		if err := s.round(ctx, env, round); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// round sets all sizes up and measures them in turn, slice by slice.
func (s series) round(ctx context.Context, env report.Env, round int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	benches := make([]bench, len(s.sizes))
	var started []*server.Server
	defer func() {
		for _, b := range benches {
			if b != nil {
				err = errors.Join(err, b.close())
			}
		}
		for _, at := range started {
			at.Kill()
		}
	}()
	for _, i := range measure.Turns(len(s.sizes), round) {
		at, err := server.Start(ctx, env.Dir)
		if err != nil {
			return err
		}
		started = append(started, at)
		b, err := s.open(ctx, at, s.sizes[i])
		if err != nil {
			return fmt.Errorf("%d %s: %w", s.sizes[i], s.what, err)
		}
		benches[i] = b
	}
	values := make([]map[string][]float64, len(s.sizes))
	for slice := range s.slices {
		for _, i := range measure.Turns(len(s.sizes), slice) {
			got, err := benches[i].slice(ctx)
			if err != nil {
				return fmt.Errorf("%d %s: %w", s.sizes[i], s.what, err)
			}
			if values[i] == nil {
				values[i] = map[string][]float64{}
			}
			for column, value := range got {
				values[i][column] = append(values[i][column], value)
			}
		}
	}
	for i, size := range s.sizes {
		for column, slices := range values[i] {
			s.Row(name(size)).Add(column, measure.NewSpread(slices).Median)
		}
	}
	return nil
}

// name is what the row of a size is called.
func name(size int) string {
	text := fmt.Sprint(size)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// judge demands that columns do not grow.
func (s series) judge(columns ...string) {
	for _, column := range columns {
		if growth := growth(s.Rows, column); len(growth) > 0 {
			first, last := s.Rows[0].Name, s.Rows[len(s.Rows)-1].Name
			s.AtMost(steady, fmt.Sprintf("%s: the dearest against the cheapest from %s to %s %s", column, first, last, s.what), growth)
		}
	}
}

// growth returns, for each round that all rows have a value of, the largest of their values by the smallest.
func growth(rows []*report.Row, column string) []float64 {
	if len(rows) < 2 {
		return nil
	}
	var ratios []float64
	for round := range rows[0].Values[column] {
		var values []float64
		for _, row := range rows {
			if round < len(row.Values[column]) {
				values = append(values, row.Values[column][round])
			}
		}
		ratio := slices.Max(values) / slices.Min(values)
		if len(values) == len(rows) && !math.IsNaN(ratio) {
			ratios = append(ratios, ratio)
		}
	}
	return ratios
}

// chart draws columns over the sizes.
func (s series) chart(file, title, label string, columns ...string) *report.Chart {
	c := &report.Chart{File: file, Title: title, XLabel: s.what, YLabel: label, LogX: true}
	for _, column := range columns {
		line := report.Series{Name: column}
		for _, size := range s.sizes {
			if s.Has(name(size)) {
				line.Points = append(line.Points, report.Point{X: float64(size), Spread: s.Row(name(size)).Spread(column)})
			}
		}
		c.Series = append(c.Series, line)
	}
	return c
}

// costOf returns what a unit of work has cost, by columns.
func costOf(c usage.Cost) map[string]float64 {
	return map[string]float64{
		rate: c.Rate(), took: c.Micros(c.Took), commands: c.PerUnit(), client: c.Micros(c.Client), servers: c.Micros(c.ServerTime()),
	}
}

// crew is workers that do a slice of their tasks at a time.
type crew struct {
	*noop.Crew
	tasks int // of a slice
}

// startCrew enqueues tasks for so many slices, starts the workers of the job and lets them warm up.
func startCrew(ctx context.Context, at *server.Server, job noop.Job, slices, tasks int) (bench, error) {
	job.Redis, job.Queues, job.Tasks = worker.Redis{Addr: at.Addr()}, []string{queue}, (1+slices)*tasks+job.Workers*job.Slots
	if err := job.Enqueue(ctx); err != nil {
		return nil, err
	}
	c, err := job.Start(ctx, meter(at), at, tasks)
	if err != nil {
		return nil, err
	}
	return crew{c, tasks}, nil
}

func (c crew) slice(ctx context.Context) (map[string]float64, error) {
	cost, err := c.Do(ctx, c.tasks)
	return costOf(cost), err
}

func (c crew) close() error { return c.Stop() }

func meter(at *server.Server) usage.Meter { return usage.Meter{Servers: []*redis.Client{at.Probe()}} }

// sizes returns those that are left at a scale, at least two.
func sizes(scale int, all ...int) []int {
	most := all[len(all)-1] * scale / 100
	n := 2
	for n < len(all) && all[n] <= most {
		n++
	}
	return all[:n]
}

// part returns so many percent of n, and at least the least.
func part(n, scale, least int) int { return max(n*scale/100, least) }
