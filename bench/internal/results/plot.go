package results

import (
	"math"
	"slices"
	"strings"
)

// The measures of a plot, in pixels.
const (
	line    = 17.0  // from one bar to the next
	names   = 175.0 // where bars begin, right of the names of their rows
	longest = 560.0
)

// plot is bars of one figure: a group of bars for each column.
type plot struct {
	Height float64
	Shapes []shape
}

// shape is a text at a place, or a bar when it has none.
type shape struct {
	X, Y, Wide         float64
	Fill, Anchor, Text string
}

// newPlot draws the columns, without the bars of some rows, which are separated by commas. railtoken's bars have a
// colour of their own.
func newPlot(r *Results, title, without string, columns []column) plot {
	p := plot{}
	text := func(x float64, anchor, text string) {
		p.Shapes = append(p.Shapes, shape{X: x, Y: p.Height, Anchor: anchor, Text: text})
	}
	most := 0.0
	rows := slices.DeleteFunc(rowsOf(r, columns), func(row string) bool {
		return slices.Contains(strings.Split(without, ", "), row)
	})
	for _, c := range columns {
		for _, row := range rows {
			if median := c.values(r, row).Median(); !math.IsNaN(median) {
				most = max(most, median)
			}
		}
	}
	p.Height = line
	text(names, "start", title)
	for _, c := range columns {
		p.Height += 1.5 * line
		text(names, "start", c.header)
		for _, row := range rows {
			median := c.values(r, row).Median()
			if math.IsNaN(median) {
				continue
			}
			fill := "#999999"
			if strings.HasPrefix(row, ours) {
				fill = "#0072b2"
			}
			p.Height += line
			wide := longest * median / most
			p.Shapes = append(p.Shapes, shape{X: names, Y: p.Height - 11, Wide: wide, Fill: fill})
			text(names-8, "end", row)
			text(names+wide+6, "start", Number(median))
		}
	}
	p.Height += line
	return p
}
