package main

import (
	"math"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// row is what one contestant reached in one scenario: a result of each round.
type row struct {
	Contestant string
	// Locks says that its tasks must not overlap.
	Locks bool
	// Results are those of the scenario, Uncontended those of as many tasks without conflicts, for contestants that park.
	Results, Uncontended []tasks.Result
}

// table is one scenario.
type table struct {
	Name, Title string
	Ideal       time.Duration
	Rows        []*row
	// Mixed names the commands that clients and scripts both call, whose count is an estimate.
	Mixed []string `json:",omitempty"`
}

// row returns the contestant's row, nil when it has none.
func (t *table) row(contestant string) *row {
	if i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Contestant == contestant }); i >= 0 {
		return t.Rows[i]
	}
	return nil
}

// spread sums up a figure of each round.
func (r *row) spread(of func(tasks.Result) float64) measure.Spread {
	return measure.NewSpread(r.each(of))
}

func (r *row) each(of func(tasks.Result) float64) []float64 {
	var values []float64
	for _, result := range r.Results {
		values = append(values, of(result))
	}
	return values
}

// total adds up a number of all rounds.
func (r *row) total(of func(tasks.Result) int) int {
	sum := 0
	for _, result := range r.Results {
		sum += of(result)
	}
	return sum
}

// finished reports whether every run came to its end.
func (r *row) finished() bool {
	return !slices.ContainsFunc(r.Results, func(result tasks.Result) bool { return !result.Finished })
}

// share returns the throughput as a share of that of base in the same round.
func (r *row) share(base *row) measure.Spread {
	if base == nil {
		return measure.NewSpread(nil)
	}
	return measure.NewSpread(measure.Ratios(r.each(tasks.Result.Rate), base.each(tasks.Result.Rate)))
}

// ofIdeal returns the throughput as a share of that of somebody who wastes no time.
func (r *row) ofIdeal(ideal time.Duration) measure.Spread {
	return r.spread(func(result tasks.Result) float64 {
		return result.Rate() / (float64(result.Tasks) / ideal.Seconds())
	})
}

// perConflict returns the commands for each time that a task was parked.
func (r *row) perConflict() measure.Spread {
	var values []float64
	for i := range min(len(r.Results), len(r.Uncontended)) {
		values = append(values, r.Results[i].PerConflict(r.Uncontended[i]))
	}
	return measure.NewSpread(values)
}

// uncontended returns the commands for each task that meets no conflict.
func (r *row) uncontended() float64 {
	var values []float64
	for _, result := range r.Uncontended {
		values = append(values, result.PerTask())
	}
	return measure.NewSpread(values).Median
}

// wrong says what must not be, or "".
func (r *row) wrong() (faults []string) {
	for _, result := range r.Results {
		if result.Err != "" && !slices.Contains(faults, result.Err) {
			faults = append(faults, result.Err)
		}
	}
	if r.Locks && r.total(overlaps) > 0 {
		faults = append(faults, "tasks of one key OVERLAPPED")
	}
	if r.total(func(result tasks.Result) int { return result.Again }) > 0 {
		faults = append(faults, "tasks were done TWICE")
	}
	return faults
}

func overlaps(r tasks.Result) int { return r.Overlaps }
func lost(r tasks.Result) int     { return r.Lost }

// number has three digits, or as many as stand before the point.
func number(v float64) string {
	digits := 2
	switch {
	case math.IsNaN(v):
		return "-"
	case math.Abs(v) >= 100:
		digits = 0
	case math.Abs(v) >= 10:
		digits = 1
	}
	return formatFloat(v, digits)
}
