package admin

import (
	"strconv"
	"time"

	"github.com/railtoken/railtoken/internal/holdings"
)

// The size of a chart in units of its own: the browser stretches it. Each minute is a column.
const (
	chartHeight = 100
	columnWidth = 10
	barWidth    = 8
)

// chart is a picture of one number by minutes. All of it is text of this page and numbers: no name of a key or a task is in it.
type chart struct {
	Name     string
	Summary  string // what the picture shows, in words
	From, To string // times
	Width    int
	Bars     []bar // of the minutes in which the number was not zero
	Gaps     []bar // where nothing is known
}

// bar is a rectangle with a text.
type bar struct {
	X, Y, Width, Height int
	Text                string
}

// series are the numbers that are drawn of an hour.
var series = []struct {
	name   string
	of     func(holdings.Point) int // negative if it is not known
	format func(int) string
	adds   bool // the sum over minutes means something
}{
	{"Waiting tasks", func(p holdings.Point) int { return p.Waiting }, num, false},
	{"Oldest wait", func(p holdings.Point) int { return int(p.Oldest / time.Second) }, seconds, false},
	{"Holds", func(p holdings.Point) int { return p.Holds }, num, true},
	{"Wakes", func(p holdings.Point) int { return p.Wakes }, num, true},
	{"Refusals", func(p holdings.Point) int { return p.Refusals }, num, true},
}

func seconds(n int) string { return span(time.Duration(n) * time.Second) }

// chartsOf draws what happened in an hour; of says what of a minute is meant, and whether it is known. If nothing is known there are
// no charts.
func chartsOf(hour []holdings.Minute, of func(holdings.Minute) (holdings.Point, bool)) []chart {
	charts, known := make([]chart, len(series)), false
	for i, s := range series {
		values := make([]int, len(hour))
		for n, m := range hour {
			values[n] = -1
			if p, ok := of(m); ok {
				values[n], known = s.of(p), true
			}
		}
		charts[i] = chart{Name: s.name, Summary: summary(hour, values, s.format, s.adds), Width: columnWidth * len(hour)}
		charts[i].From, charts[i].To = clock(hour[0]), clock(hour[len(hour)-1])
		charts[i].draw(hour, values, s.format)
	}
	if !known {
		return nil
	}
	return charts
}

// draw adds the bars and the gaps. The current minute is no gap: no report may have come yet.
func (c *chart) draw(hour []holdings.Minute, values []int, format func(int) string) {
	most := 0
	for _, v := range values {
		most = max(most, v)
	}
	for n, v := range values {
		last := len(c.Gaps) - 1
		switch {
		case v > 0:
			height := max(v*chartHeight/most, 2)
			c.Bars = append(c.Bars, bar{n*columnWidth + 1, chartHeight - height, barWidth, height, clock(hour[n]) + ": " + format(v)})
		case v == 0 || n == len(values)-1:
		case last >= 0 && c.Gaps[last].X+c.Gaps[last].Width == n*columnWidth:
			c.Gaps[last].Width += columnWidth
		default:
			c.Gaps = append(c.Gaps, bar{n * columnWidth, 0, columnWidth, chartHeight, "from " + clock(hour[n]) + ": not known"})
		}
	}
}

// summary says what a chart shows.
func summary(hour []holdings.Minute, values []int, format func(int) string, adds bool) string {
	most, sum, unknown, last := -1, 0, 0, len(values)-1
	for n, v := range values {
		switch {
		case v >= 0:
			sum += v
			if most < 0 || v >= values[most] {
				most = n
			}
		case n < last:
			unknown++
		}
	}
	if most < 0 {
		return "not counted"
	}
	now := values[last]
	if now < 0 {
		now = values[last-1]
	}
	text := "none"
	switch peak := "most " + format(values[most]) + " at " + clock(hour[most]); {
	case values[most] == 0:
	case adds:
		text = format(sum) + " in all, " + peak
	case now == values[most]:
		text = "now " + format(now) + ", the most"
	case now >= 0:
		text = "now " + format(now) + ", " + peak
	default:
		text = peak
	}
	if unknown > 0 {
		text += "; " + strconv.Itoa(unknown) + " min not known"
	}
	return text
}

func clock(m holdings.Minute) string { return m.At.UTC().Format("15:04") }
