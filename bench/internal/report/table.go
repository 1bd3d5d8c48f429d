package report

import (
	"slices"

	"github.com/railtoken/railtoken/bench/internal/measure"
)

// Section is a piece of the report about one question.
type Section struct {
	// Name is how the section is chosen on the command line and called in links: short, without spaces.
	Name, Title string
	// Text says in Markdown what was measured and how to read it.
	Text   string
	Tables []*Table
	Charts []*Chart `json:"-"`
}

// Table is one scenario.
type Table struct {
	// Name is short, such as "K4": targets are told by it.
	Name, Title string
	// Columns are the names of the values to show, in this order.
	Columns []string
	Rows    []*Row
	Targets []Target
	// Notes are lines below the table.
	Notes []string
}

// Row is what one contestant reached in one scenario, or what was reached at one size.
type Row struct {
	Name string
	// Values by their column, one for each round; NaN in a round without one.
	Values map[string][]float64
	// Cells are shown in place of the values of a column.
	Cells map[string]string
	// Note says what else there is to know, such as failures.
	Note string
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

// Row returns the row of that name, new when there is none yet.
func (t *Table) Row(name string) *Row {
	if r := t.find(name); r != nil {
		return r
	}
	r := &Row{Name: name, Values: map[string][]float64{}}
	t.Rows = append(t.Rows, r)
	return r
}

// Has reports whether there is a row of that name.
func (t *Table) Has(name string) bool { return t.find(name) != nil }

func (t *Table) find(name string) *Row {
	if i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Name == name }); i >= 0 {
		return t.Rows[i]
	}
	return nil
}

// Add adds the value of a round.
func (r *Row) Add(column string, value float64) {
	r.Values[column] = append(r.Values[column], value)
}

// Set shows a text in place of the values of a column.
func (r *Row) Set(column, text string) {
	if r.Cells == nil {
		r.Cells = map[string]string{}
	}
	r.Cells[column] = text
}

// Spread sums up a column of the row.
func (r *Row) Spread(column string) measure.Spread { return measure.NewSpread(r.Values[column]) }

// Ratio returns the ratios of two columns of the row.
func (r *Row) Ratio(column, base string) []float64 {
	return measure.Ratios(r.Values[column], r.Values[base])
}

// Against returns the ratios of a column between two rows, nil when one of them is missing.
func (t *Table) Against(column, subject, base string) []float64 {
	s, b := t.find(subject), t.find(base)
	if s == nil || b == nil {
		return nil
	}
	return measure.Ratios(s.Values[column], b.Values[column])
}

// Compare adds a column with the ratios of another one to those of the row base, for every row. Nothing happens when there is no such row.
func (t *Table) Compare(name, column, base string) {
	if !t.Has(base) {
		return
	}
	for _, r := range t.Rows {
		r.Values[name] = t.Against(column, r.Name, base)
	}
	t.Columns = append(t.Columns, name)
}

// AtMost and AtLeast judge values, such as those of [Table.Against]; nothing when there are none.
func (t *Table) AtMost(bound float64, what string, values []float64) {
	t.judge(false, bound, what, values)
}

// AtLeast is the other way round.
func (t *Table) AtLeast(bound float64, what string, values []float64) {
	t.judge(true, bound, what, values)
}

func (t *Table) judge(least bool, bound float64, what string, values []float64) {
	if len(values) > 0 {
		t.Targets = append(t.Targets, Target{What: what, Least: least, Bound: bound, Got: measure.NewSpread(values)})
	}
}
