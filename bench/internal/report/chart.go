package report

import "github.com/railtoken/railtoken/bench/internal/measure"

// Chart is one plot: bars when there are groups, else lines.
type Chart struct {
	// File is the name of the SVG file, without its ending.
	File, Title string
	XLabel      string // of lines
	YLabel      string
	LogX, LogY  bool
	// Groups of bars stand beside each other, in this order.
	Groups []Group
	// Series are lines.
	Series []Series
	// Target, when it is not zero, is drawn as a line across.
	Target float64
}

// Group is some bars beside each other.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is the figure of one contestant. A contestant has the same colour in all groups.
type Bar struct {
	Name   string
	Spread measure.Spread
	// Over says that the bar is longer than can be told: the value is a bound.
	Over bool
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// Point is one place on a line, with its quartiles.
type Point struct {
	X      float64
	Spread measure.Spread
}

// BarsOf returns a group with the bar of each row that has values in the column.
func BarsOf(name string, t *Table, column string) Group {
	g := Group{Name: name}
	for _, r := range t.Rows {
		if len(r.Values[column]) > 0 {
			g.Bars = append(g.Bars, Bar{Name: r.Name, Spread: r.Spread(column)})
		}
	}
	return g
}
