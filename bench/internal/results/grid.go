package results

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ours is the row that the others are compared with.
const ours = "railtoken"

// column is a column of the report: one of a table, or its ratio to another row, the base, in the same round.
type column struct{ header, table, name, base string }

func newColumn(header, table, name string, base ...string) column {
	return column{header, table, name, strings.Join(base, "")}
}

// values returns those of a row; nil when there are none.
func (c column) values(r *Results, row string) Values {
	return r.Table(c.table).Against(c.name, row, c.base)
}

// cell shows the median, marked when the contestant was not through in time in some round.
func (c column) cell(r *Results, row string) string {
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

// grid returns a table in Markdown: the rows of all tables that the columns name, in the order in which they come, whose
// names have the prefix.
func grid(r *Results, first string, columns []column, prefix string) string {
	header, rule := []string{first}, []string{"---"}
	for _, c := range columns {
		header, rule = append(header, c.header), append(rule, "---:")
	}
	var b strings.Builder
	writeRow(&b, header...)
	writeRow(&b, rule...)
	for _, row := range rowsOf(r, columns) {
		if !strings.HasPrefix(row, prefix) {
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
func rowsOf(r *Results, columns []column) (rows []string) {
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

// Number has three digits, or as many as stand before the point; "-" is no number.
func Number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case math.IsInf(v, 0):
		return "∞"
	case v == 0:
		return "0"
	}
	digits := 2
	switch size := math.Abs(v); {
	case size >= 1000:
		return Grouped(strconv.FormatFloat(v, 'f', 0, 64), "\u2009")
	case size >= 100:
		digits = 0
	case size >= 10:
		digits = 1
	case size < 0.0095:
		digits = 4
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// WithQuartiles is the median, with the quartiles in brackets when they differ from it.
func WithQuartiles(s Spread) string {
	median, low, high := Number(s.Median), Number(s.Low), Number(s.High)
	if low == median && high == median {
		return median
	}
	return fmt.Sprintf("%s [%s %s]", median, low, high)
}
