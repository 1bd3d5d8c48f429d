package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The measures of a plot, in pixels.
const (
	width, height       = 820.0, 360.0
	left, right         = 74.0, 16.0
	top, bottom         = 44.0, 46.0
	legendLine, swatch  = 18.0, 10.0
	barGap, groupMargin = 1.0, 0.14
	letter              = 6.6 // how wide one is, about
)

// SVG writes the plot. It has a background of its own, to be read on dark pages too.
func (c *Chart) SVG(out io.Writer) error {
	d := &drawing{colours: map[string]string{}}
	names := c.names()
	for i, name := range names {
		d.colours[name] = palette[i%len(palette)]
	}
	total := height + legendHeight(names)
	xs, ys := c.values()
	y := newScale(ys, c.LogY, height-bottom, top)
	d.add(`<rect width="%g" height="%g" fill="#ffffff"/>`, width, total)
	d.legend(names)
	d.text(width/2, 22, "middle", "font-size:15px;font-weight:bold", c.Title)
	d.axisY(y, c.YLabel)
	if len(c.Groups) > 0 {
		d.bars(c.Groups, y)
	} else {
		d.lines(c, newScale(xs, c.LogX, left+10, width-right-10), y)
	}
	if c.Target != 0 {
		d.add(`<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="#222222" stroke-dasharray="6 4"/>`, left, y.at(c.Target), width-right, y.at(c.Target))
	}
	if d.err != nil {
		return d.err
	}
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12" role="img">`+"\n%s</svg>\n",
		width, total, d.body.String())
	return err
}

// drawing is the inside of an SVG file.
type drawing struct {
	body    strings.Builder
	colours map[string]string
	err     error
}

func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(&d.body, format+"\n", args...)
}

func (d *drawing) text(x, y float64, anchor, style, text string) {
	var escaped strings.Builder
	if err := xml.EscapeText(&escaped, []byte(text)); err != nil {
		d.err = err
	}
	if style != "" {
		style = ` style="` + style + `"`
	}
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="#222222"%s>%s</text>`, x, y, anchor, style, escaped.String())
}

// place calls put with the place of each name below the plot, and returns the height that they take.
func place(names []string, put func(name string, x, y float64)) float64 {
	x, y := left, height+4
	for _, name := range names {
		wide := swatch + 6 + letter*float64(len([]rune(name))) + 16
		if x > left && x+wide > width-right {
			x, y = left, y+legendLine
		}
		put(name, x, y)
		x += wide
	}
	return y - height + legendLine + 4
}

func legendHeight(names []string) float64 { return place(names, func(string, float64, float64) {}) }

func (d *drawing) legend(names []string) {
	place(names, func(name string, x, y float64) {
		d.add(`<rect x="%.1f" y="%.1f" width="%g" height="%g" fill="%s"/>`, x, y, swatch, swatch, d.colours[name])
		d.text(x+swatch+5, y+swatch, "start", "", name)
	})
}

func (d *drawing) axisY(y scale, label string) {
	for _, v := range y.ticks() {
		d.add(`<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="#dddddd"/>`, left, y.at(v), width-right, y.at(v))
		d.text(left-6, y.at(v)+4, "end", "", tick(v))
	}
	d.add(`<line x1="%g" y1="%g" x2="%g" y2="%g" stroke="#222222"/>`, left, height-bottom, width-right, height-bottom)
	d.text(left-60, top-8, "start", "", label)
}

func (d *drawing) bars(groups []Group, y scale) {
	each := (width - left - right) / float64(len(groups))
	for i, g := range groups {
		from := left + each*(float64(i)+groupMargin/2)
		wide := each * (1 - groupMargin) / float64(max(len(g.Bars), 1))
		wide = min(wide, 60)
		from += (each*(1-groupMargin) - wide*float64(len(g.Bars))) / 2
		for j, b := range g.Bars {
			d.bar(b, from+wide*float64(j), wide, y)
		}
		d.text(left+each*(float64(i)+0.5), height-bottom+18, "middle", "", g.Name)
	}
}

func (d *drawing) bar(b Bar, x, wide float64, y scale) {
	if math.IsNaN(b.Spread.Median) {
		d.text(x+wide/2, y.a-3, "middle", "font-size:10px", "-")
		return
	}
	at := y.at(b.Spread.Median)
	opacity := ""
	if b.Over {
		opacity = ` fill-opacity="0.45"`
	}
	d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s/>`, x+barGap, at, max(wide-2*barGap, 1), y.a-at, d.colours[b.Name], opacity)
	middle := x + wide/2
	if b.Spread.High > b.Spread.Low {
		d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#222222"/>`, middle, y.at(b.Spread.Low), middle, y.at(b.Spread.High))
	}
	if wide >= 2*letter {
		d.text(middle, min(at, y.at(b.Spread.High))-4, "middle", "font-size:9px", short(b.Spread.Median))
	}
}

// tick is a round number.
func tick(v float64) string {
	if v >= 1000 {
		return Number(v)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// short is a number for little room.
func short(v float64) string {
	if math.Abs(v) >= 1000 {
		return Number(v/1000) + "k"
	}
	return Number(v)
}

func (d *drawing) lines(c *Chart, x, y scale) {
	for _, v := range x.ticks() {
		d.add(`<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="#eeeeee"/>`, x.at(v), top, x.at(v), height-bottom)
		d.text(x.at(v), height-bottom+18, "middle", "", tick(v))
	}
	d.text((left+width-right)/2, height-bottom+36, "middle", "", c.XLabel)
	for _, s := range c.Series {
		var path []string
		for _, p := range s.Points {
			if math.IsNaN(p.Spread.Median) {
				continue
			}
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(p.X), y.at(p.Spread.Median)))
			d.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(p.X), y.at(p.Spread.Median), d.colours[s.Name])
			if p.Spread.High > p.Spread.Low {
				d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x.at(p.X), y.at(p.Spread.Low), x.at(p.X), y.at(p.Spread.High), d.colours[s.Name])
			}
		}
		d.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), d.colours[s.Name])
	}
}
