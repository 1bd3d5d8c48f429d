package main

import (
	"fmt"
	"math"
	"strings"
)

// The sizes of the plot, in pixels.
const (
	plotLeft, plotRight, plotRow = 230, 110, 22
	plotWidth                    = 760
)

// plot draws the cents off of each result as an SVG image: one bar each, on a scale of the square root, because the modes differ
// by orders of magnitude.
func plot(results []result, transfers int) string {
	var most float64 = 1
	for _, r := range results {
		most = max(most, math.Sqrt(float64(r.off)))
	}
	var b strings.Builder
	height := 60 + plotRow*len(results)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="12" y="24" font-size="15">Cents that are missing or too many after %d transfers (square root scale)</text>`+"\n", transfers)
	for i, r := range results {
		y := 44 + i*plotRow
		width := (plotWidth - plotLeft - plotRight) * math.Sqrt(float64(r.off)) / most
		fill := "#c0392b"
		if r.Mode.strong() {
			fill = "#1e8449"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s, %s</text>`+"\n", plotLeft-8, y+12, names[r.Dialect], r.Mode)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLeft, y, max(2, width), plotRow-7, fill)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%d</text>`+"\n", plotLeft+max(2, width)+6, y+12, r.off)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
