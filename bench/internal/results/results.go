// Package results holds the figures of a benchmark run, by round, and reads and writes them as JSON.
//
// Figures are kept for each round because ratios are taken within a round: the state of the machine then affects both
// sides alike. The targets, in targets.md, are judged by them. The templates determine what the report shows.
package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Results are all figures of one run.
type Results struct {
	Setting Setting
	Rounds  int
	Took    string
	Tables  []*Table
}

// Table is one scenario.
type Table struct {
	// Name is short, such as "K4".
	Name, Title string
	// Columns are the names of the values, in the order in which they were added.
	Columns []string
	Rows    []*Row
	// Run says of which other run the table is, "" for that of the results.
	Run string `json:",omitempty"`
}

// Row is what one contestant reached in a scenario, or what was reached at one size.
type Row struct {
	Name string
	// Values by column, one for each round; NaN in a round without one.
	Values map[string]Values
	// Note says what else there is to know, such as failures.
	Note string `json:",omitempty"`
}

// Table returns the table of that name, nil when it was not measured.
func (r *Results) Table(name string) *Table {
	return find(r.Tables, func(t *Table) bool { return t.Name == name })
}

// Row returns the row of that name, nil when there is none, nor the table.
func (t *Table) Row(name string) *Row {
	if t == nil {
		return nil
	}
	return find(t.Rows, func(r *Row) bool { return r.Name == name })
}

// Put adds the tables of a later run, in place of those of the same names, and the versions that were measured there.
func (r *Results) Put(later *Results) {
	for _, t := range later.Tables {
		t.Run = fmt.Sprintf("%#q, %d rounds, commit %s", later.Setting.Command, later.Rounds, later.Setting.Commit)
		if i := slices.IndexFunc(r.Tables, func(old *Table) bool { return old.Name == t.Name }); i >= 0 {
			r.Tables[i] = t
		} else {
			r.Tables = append(r.Tables, t)
		}
	}
	for _, version := range later.Setting.Versions {
		if !slices.Contains(r.Setting.Versions, version) {
			r.Setting.Versions = append(r.Setting.Versions, version)
		}
	}
}

// Runs returns the names of the tables of other runs, by run as a cell of a Markdown table.
func (r *Results) Runs() map[string][]string {
	runs := map[string][]string{}
	for _, t := range r.Tables {
		if t.Run != "" {
			run := strings.ReplaceAll(t.Run, "|", `\|`)
			runs[run] = append(runs[run], t.Name)
		}
	}
	return runs
}

func find[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// AddRow adds a row, unless there is one of that name, and returns it.
func (t *Table) AddRow(name string) *Row {
	r := t.Row(name)
	if r == nil {
		r = &Row{Name: name, Values: map[string]Values{}}
		t.Rows = append(t.Rows, r)
	}
	return r
}

// Add adds the value of a round to a column of a row. Both are new when they do not exist.
func (t *Table) Add(row, column string, value float64) {
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	r := t.AddRow(row)
	r.Values[column] = append(r.Values[column], value)
}

// Of returns the values of a column of a row, nil when there are none; with "one ÷ other", the ratios of two columns.
func (t *Table) Of(row, column string) Values {
	if one, other, isRatio := strings.Cut(column, " ÷ "); isRatio {
		return Ratios(t.Of(row, one), t.Of(row, other))
	}
	if r := t.Row(row); r != nil {
		return r.Values[column]
	}
	return nil
}

// Against returns the ratios of a column between two rows, nil when one of them has no values. Without a base it
// returns the values themselves.
func (t *Table) Against(column, subject, base string) Values {
	if base == "" {
		return t.Of(subject, column)
	}
	return Ratios(t.Of(subject, column), t.Of(base, column))
}

// Read reads the results of a file that [Results.Write] has written.
func Read(file string) (*Results, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Write writes the results to a file as JSON, a line for each table and row.
func (r *Results) Write(file string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	data = bytes.ReplaceAll(data, []byte(`{"Name":`), []byte("\n"+`{"Name":`))
	return os.WriteFile(file, append(data, '\n'), 0o644) //nolint:gosec // it is for all to read
}
