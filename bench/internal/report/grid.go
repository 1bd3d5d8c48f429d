package report

import (
	"slices"
	"strings"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// ours is the row that the others are compared with.
const ours = "railtoken"

// column is a column of the report: a column of a table, or its ratio to something of the same round.
type column struct {
	header, table, name string
	// base is what values are divided by: another row, another column after "÷", or with "ours ÷" our value is
	// divided by that of the row; "" for nothing.
	base string
}

func newColumn(header, table, name string, base ...string) column {
	return column{header, table, name, strings.Join(base, "")}
}

// values returns those of a row; nil when there are none.
func (c column) values(r *results.Results, row string) results.Values {
	t := r.Table(c.table)
	if t == nil || t.Row(row) == nil {
		return nil
	}
	other, isColumn := strings.CutPrefix(c.base, "÷")
	switch {
	case c.base == "":
		return t.Of(row, c.name)
	case isColumn:
		return results.Ratios(t.Of(row, c.name), t.Of(row, other))
	case c.base == "ours ÷":
		return t.Against(c.name, ours, row)
	default:
		return t.Against(c.name, row, c.base)
	}
}

// cell shows the median, marked when the contestant was not through in time in some round.
func (c column) cell(r *results.Results, row string) string {
	values := c.values(r, row)
	if len(values) == 0 {
		return ""
	}
	text := WithQuartiles(values.Spread())
	if slices.Contains(r.Table(c.table).Of(row, "finished"), 0) {
		text += " *"
	}
	return text
}

// grid returns a table in Markdown: the rows of all tables that the columns name, in the order in which they come.
func grid(r *results.Results, first string, columns []column) string {
	return gridOf(r, first, columns, func(string) bool { return true })
}

// gridOfOurs leaves out the rows of others.
func gridOfOurs(r *results.Results, first string, columns []column) string {
	return gridOf(r, first, columns, func(row string) bool { return strings.HasPrefix(row, ours) })
}

func gridOf(r *results.Results, first string, columns []column, wanted func(row string) bool) string {
	header, rule := []string{first}, []string{"---"}
	for _, c := range columns {
		header, rule = append(header, c.header), append(rule, "---:")
	}
	var b strings.Builder
	writeRow(&b, header...)
	writeRow(&b, rule...)
	for _, row := range rowsOf(r, columns) {
		if !wanted(row) {
			continue
		}
		cells := []string{row}
		for _, c := range columns {
			cells = append(cells, c.cell(r, row))
		}
		writeRow(&b, cells...)
	}
	return b.String()
}

// rowsOf returns the rows that have values in a column.
func rowsOf(r *results.Results, columns []column) (rows []string) {
	for _, c := range columns {
		t := r.Table(c.table)
		if t == nil {
			continue
		}
		for _, row := range t.Rows {
			if len(c.values(r, row.Name)) > 0 && !slices.Contains(rows, row.Name) {
				rows = append(rows, row.Name)
			}
		}
	}
	return rows
}

func writeRow(b *strings.Builder, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}
