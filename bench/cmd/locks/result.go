package main

import (
	"slices"

	"github.com/railtoken/railtoken/bench/internal/measure"
)

// Row is what one contestant reached in one scenario: a value of each round.
type Row struct {
	Contestant string
	// Values by their name, such as "p50 us", one for each round.
	Values map[string][]float64
	// Note says what else there is to know, such as failures.
	Note string `json:",omitempty"`
}

// Table is one scenario.
type Table struct {
	Name, Title string
	Columns     []string
	Rows        []*Row
	Targets     []Target
}

// Target is what a ratio or a figure is to reach.
type Target struct {
	What  string
	Least bool // the bound is the least that will do; else the most
	Bound float64
	Got   measure.Spread
}

// Met reports whether the median reaches the bound.
func (t Target) Met() bool {
	if t.Least {
		return t.Got.Median >= t.Bound
	}
	return t.Got.Median <= t.Bound
}

// row returns the row of a contestant, new when there is none yet.
func (t *Table) row(name string) *Row {
	if i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Contestant == name }); i >= 0 {
		return t.Rows[i]
	}
	r := &Row{Contestant: name, Values: map[string][]float64{}}
	t.Rows = append(t.Rows, r)
	return r
}

func (t *Table) has(name string) bool {
	return slices.ContainsFunc(t.Rows, func(r *Row) bool { return r.Contestant == name })
}

func (r *Row) add(column string, value float64) {
	r.Values[column] = append(r.Values[column], value)
}

// atMost and atLeast judge values of one contestant; nothing when there are none.
func (t *Table) atMost(bound float64, what string, values []float64) {
	t.judge(false, bound, what, values)
}

func (t *Table) atLeast(bound float64, what string, values []float64) {
	t.judge(true, bound, what, values)
}

func (t *Table) judge(least bool, bound float64, what string, values []float64) {
	if len(values) > 0 {
		t.Targets = append(t.Targets, Target{What: what, Least: least, Bound: bound, Got: measure.NewSpread(values)})
	}
}

// against returns the ratios of a column between two contestants, nil when one of them is missing.
func (t *Table) against(column, subject, base string) []float64 {
	if !t.has(subject) || !t.has(base) {
		return nil
	}
	return measure.Ratios(t.row(subject).Values[column], t.row(base).Values[column])
}

// ratio returns the ratios of two columns of the row.
func (r *Row) ratio(column, base string) []float64 {
	return measure.Ratios(r.Values[column], r.Values[base])
}
