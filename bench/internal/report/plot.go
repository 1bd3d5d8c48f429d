package report

import (
	"math"
	"slices"
	"strings"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// palette is Okabe and Ito's, which the colour-blind can tell apart; ours is the first.
var palette = []string{
	"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999", "#f0e442", "#882255", "#44aa99", "#332288",
}

// The measures of a plot, in pixels.
const (
	width, height = 820.0, 300.0
	top, bottom   = 40.0, 30.0
	legendLine    = 18.0
	letter        = 6.6 // how wide one is, about
)

// plot is bars of one figure: a group of bars for each column, and a legend below.
type plot struct {
	Width, Height float64
	Shapes        []shape
}

// shape is a text at a place, or a rectangle when it has none.
type shape struct {
	X, Y, Wide, High   float64
	Fill, Anchor, Text string
}

// newPlot draws the columns, without the bars of some rows, which are separated by commas.
func newPlot(r *results.Results, title, without string, columns []column) plot {
	rows, most := bars(r, strings.Split(without, ", "), columns)
	p := plot{Width: width}
	bar := func(row int, x, y, wide, high float64) {
		p.Shapes = append(p.Shapes, shape{X: x, Y: y, Wide: wide, High: high, Fill: palette[row%len(palette)]})
	}
	label := func(x, y float64, anchor, text string) {
		p.Shapes = append(p.Shapes, shape{X: x, Y: y, Anchor: anchor, Text: text})
	}
	label(width/2, 22, "middle", title)
	each := width / float64(len(columns))
	for i, c := range columns {
		from, wide := each*(float64(i)+0.06), each*0.88/float64(max(len(rows), 1))
		for j, row := range rows {
			median := c.values(r, row).Median()
			if math.IsNaN(median) {
				continue
			}
			at := height - bottom - (height-top-bottom-14)*median/most
			bar(j, from+wide*float64(j), at, wide-1, height-bottom-at)
			label(from+wide*(float64(j)+0.5), at-3, "middle", short(median))
		}
		label(each*(float64(i)+0.5), height-bottom+18, "middle", c.header)
	}
	x, y := 10.0, height+4
	for j, row := range rows {
		wide := 32 + letter*float64(len([]rune(row)))
		if x+wide > width {
			x, y = 10, y+legendLine
		}
		bar(j, x, y, 10, 10)
		label(x+15, y+10, "start", row)
		x += wide
	}
	p.Height = y + legendLine
	return p
}

// bars returns the rows that have a bar, ours first, and the largest of their values.
func bars(r *results.Results, without []string, columns []column) (rows []string, most float64) {
	var others []string
	for _, row := range rowsOf(r, columns) {
		switch {
		case slices.Contains(without, row):
			continue
		case strings.HasPrefix(row, ours):
			rows = append(rows, row)
		default:
			others = append(others, row)
		}
		for _, c := range columns {
			if median := c.values(r, row).Median(); !math.IsNaN(median) {
				most = max(most, median)
			}
		}
	}
	return append(rows, others...), most
}

// short is a number for little room.
func short(v float64) string {
	if math.Abs(v) >= 1000 {
		return Number(v/1000) + "k"
	}
	return Number(v)
}
