package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// plot is bars of one figure: a group of bars for each column.
type plot struct {
	file, title string
	columns     []column
	without     []string // rows that are left out
}

var allPlots = []plot{
	{
		"tasks", "Tasks that want the same keys: throughput as a share of asynq without locks",
		[]column{
			{"1 key", "K1", "tasks/s", "bare"},
			{"4 keys", "K4", "tasks/s", "bare"},
			{"20 keys", "K20", "tasks/s", "bare"},
			{"real orders", "orders", "tasks/s", "bare"},
		},
		[]string{"bare", "railtoken failfast"},
	},
	{
		"locks", "Keys that no other caller wants, 128 callers: pairs of acquire and release in a second",
		[]column{{"one server", "A128", "pairs/s", ""}, {"five servers", "B128", "pairs/s", ""}},
		nil,
	},
	{
		"contended", "64 callers that want the same key: throughput as a share of the ideal",
		[]column{
			{"1 process", "C1", "of ideal", ""},
			{"4 processes", "C4", "of ideal", ""},
			{"1 process, five servers", "C1-five", "of ideal", ""},
		},
		nil,
	},
}

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

// write writes the plot as SVG, with a background of its own, to be read on dark pages too.
func (p plot) write(out io.Writer, r *results.Results) error {
	rows, most := p.rows(r)
	d := &strings.Builder{}
	label(d, width/2, 22, "middle", p.title)
	each := width / float64(len(p.columns))
	for i, c := range p.columns {
		from, wide := each*(float64(i)+0.06), each*0.88/float64(max(len(rows), 1))
		for j, row := range rows {
			median := c.values(r, row).Median()
			if math.IsNaN(median) {
				continue
			}
			at := height - bottom - (height-top-bottom-14)*median/most
			fmt.Fprintf(d, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
				from+wide*float64(j), at, wide-1, height-bottom-at, palette[j%len(palette)])
			label(d, from+wide*(float64(j)+0.5), at-3, "middle", short(median))
		}
		label(d, each*(float64(i)+0.5), height-bottom+18, "middle", c.header)
	}
	x, y := 10.0, height+4
	for j, row := range rows {
		wide := 32 + letter*float64(len([]rune(row)))
		if x+wide > width {
			x, y = 10, y+legendLine
		}
		fmt.Fprintf(d, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", x, y, palette[j%len(palette)])
		label(d, x+15, y+10, "start", row)
		x += wide
	}
	total := y + legendLine
	_, err := fmt.Fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\""+
		" font-size=\"11\" role=\"img\">\n<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n%s</svg>\n",
		width, total, width, total, d)
	return err
}

// rows returns the rows that have a bar, ours first, and the largest of their values.
func (p plot) rows(r *results.Results) (rows []string, most float64) {
	rows = slices.DeleteFunc(rowsOf(r, p.columns), func(row string) bool { return slices.Contains(p.without, row) })
	for _, row := range rows {
		for _, c := range p.columns {
			if median := c.values(r, row).Median(); !math.IsNaN(median) {
				most = max(most, median)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b string) int { return rank(a) - rank(b) })
	return rows, most
}

func rank(row string) int {
	if strings.HasPrefix(row, ours) {
		return 0
	}
	return 1
}

func label(d *strings.Builder, x, y float64, anchor, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#222222">`, x, y, anchor)
	_ = xml.EscapeText(d, []byte(text)) // a Builder takes everything
	d.WriteString("</text>\n")
}

// short is a number for little room.
func short(v float64) string {
	if math.Abs(v) >= 1000 {
		return Number(v/1000) + "k"
	}
	return Number(v)
}
