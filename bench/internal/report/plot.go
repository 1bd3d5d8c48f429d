package report

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// scale maps values to places on an axis.
type scale struct {
	from, to float64 // the values at its ends
	log      bool
	a, b     float64 // where the ends are
}

// newScale returns a scale for the values: from zero, or from a power of ten when it is logarithmic, to a round number.
func newScale(values []float64, log bool, a, b float64) scale {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 })
	if len(values) == 0 {
		values = []float64{1}
	}
	s := scale{log: log, a: a, b: b, to: slices.Max(values)}
	if log {
		s.from = math.Pow(10, math.Floor(math.Log10(slices.Min(values))))
		s.to = math.Max(math.Pow(10, math.Ceil(math.Log10(s.to))), 10*s.from)
		return s
	}
	if s.to <= 0 {
		s.to = 1
	}
	step := roundStep(s.to)
	s.to = math.Ceil(s.to/step-1e-9) * step
	return s
}

// at returns the place of a value; values beyond the ends are at the ends.
func (s scale) at(v float64) float64 {
	share := (v - s.from) / (s.to - s.from)
	if s.log {
		share = math.Log(v/s.from) / math.Log(s.to/s.from)
	}
	if math.IsNaN(share) {
		share = 0
	}
	return s.a + min(max(share, 0), 1)*(s.b-s.a)
}

// ticks returns the values to be marked.
func (s scale) ticks() (values []float64) {
	if s.log {
		for v := s.from; v <= s.to*1.001; v *= 10 {
			values = append(values, v)
		}
		return values
	}
	step := roundStep(s.to)
	for i := 0; float64(i)*step <= s.to*1.001; i++ {
		values = append(values, float64(i)*step)
	}
	return values
}

// roundStep returns a step of 1, 2 or 5 times a power of ten, of which four to ten reach most.
func roundStep(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{1, 0.5, 0.2, 0.1} {
		if most/(step*part) >= 4 {
			return step * part
		}
	}
	return step / 10
}

// palette is Okabe and Ito's, which the colour-blind can tell apart; ours is the first.
var palette = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999", "#f0e442", "#882255", "#44aa99", "#332288"}

// names returns the contestants of a chart, ours first, in the order in which they come.
func (c *Chart) names() (all []string) {
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, g := range c.Groups {
		for _, b := range g.Bars {
			add(b.Name)
		}
	}
	for _, s := range c.Series {
		add(s.Name)
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

func rank(name string) int {
	if strings.HasPrefix(name, "railtoken") {
		return 0
	}
	return 1
}

func (c *Chart) values() (xs, ys []float64) {
	for _, g := range c.Groups {
		for _, b := range g.Bars {
			ys = append(ys, b.Spread.Median, b.Spread.High)
		}
	}
	for _, s := range c.Series {
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Spread.Median, p.Spread.Low, p.Spread.High)
		}
	}
	if c.Target != 0 {
		ys = append(ys, c.Target)
	}
	return xs, ys
}
