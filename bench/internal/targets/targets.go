// Package targets holds the targets for the benchmark's figures in one table, and judges the results of a run against
// them.
package targets

import (
	"github.com/railtoken/railtoken/bench/internal/results"
)

// Target is a bound for a ratio or a figure of one table.
type Target struct {
	Table, What string
	Bound       Bound
	// of returns the values of all rounds to judge by their median, none when the table has none, and the name of the
	// row that they are set against when the results decide which one that is.
	of func(*results.Table) (values results.Values, against string)
}

// Bound is the least or the most that a figure may be.
type Bound struct {
	Least bool
	Value float64
}

func atLeast(v float64) Bound { return Bound{true, v} }
func atMost(v float64) Bound  { return Bound{false, v} }

// Verdict is a target with what was measured.
type Verdict struct {
	Target

	Got results.Spread
	Met bool
}

// Judge returns the verdicts on all targets that the results have figures for.
func Judge(r *results.Results) []Verdict {
	var verdicts []Verdict
	for _, target := range All {
		table := r.Table(target.Table)
		if table == nil {
			continue
		}
		values, against := target.of(table)
		if len(values) == 0 {
			continue
		}
		v := Verdict{Target: target, Got: values.Spread()}
		if against != "" {
			v.What += against
		}
		v.Met = target.Bound.holds(v.Got.Median)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// holds reports whether a value is within the bound; NaN is not.
func (b Bound) holds(value float64) bool {
	if b.Least {
		return value >= b.Value
	}
	return value <= b.Value
}

// Missed returns the verdicts whose target was missed.
func Missed(verdicts []Verdict) []Verdict {
	var missed []Verdict
	for _, v := range verdicts {
		if !v.Met {
			missed = append(missed, v)
		}
	}
	return missed
}
