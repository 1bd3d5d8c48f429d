package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/railtoken/railtoken/bench/internal/results"
)

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
		return thousands(v)
	case size >= 100:
		digits = 0
	case size >= 10:
		digits = 1
	case size < 0.0095:
		digits = 4
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// thousands sets a thin space before each three digits.
func thousands(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u2009" + text[i:]
	}
	return text
}

// shown is the median.
func shown(values results.Values) string { return Number(values.Median()) }

// WithQuartiles is the median, with the quartiles in brackets when they differ from it.
func WithQuartiles(s results.Spread) string {
	median, low, high := Number(s.Median), Number(s.Low), Number(s.High)
	if low == median && high == median {
		return median
	}
	return fmt.Sprintf("%s [%s %s]", median, low, high)
}
