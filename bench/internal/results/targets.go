package results

import (
	_ "embed"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed targets.md
var table string

// Targets are the targets, in the order of their table, which names several scenarios, figures or bases at a time.
var Targets = parseTargets(table)

// Target is a bound for a figure of one scenario.
type Target struct {
	Table, Row, Figure string
	// Base is the row that the figure is set against, "" for none.
	Base string
	// Bound is the least or the most that the figure may be, such as "≥ 0.95".
	Bound string
}

// Verdict is a target with what was measured.
type Verdict struct {
	Target

	What string // the figure in words
	Got  Spread
	Met  bool
}

func parseTargets(text string) (all []Target) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if _, _, ok := bound(cells[len(cells)-1]); !ok {
			continue // the header
		}
		for scenario := range strings.SplitSeq(cells[0], ", ") {
			for figure := range strings.SplitSeq(cells[2], ", ") {
				for base := range strings.SplitSeq(cells[3], ", ") {
					all = append(all, Target{scenario, cells[1], figure, base, cells[4]})
				}
			}
		}
	}
	return all
}

// bound returns the value of a bound, and whether it is the least that a figure may be.
func bound(text string) (value float64, least, ok bool) {
	sign, number, _ := strings.Cut(text, " ")
	value, err := strconv.ParseFloat(number, 64)
	return value, sign == "≥", err == nil
}

// Judge returns the verdicts on all targets that the results have figures for. A target is judged by the median of the
// rounds.
func Judge(r *Results) (verdicts []Verdict) {
	for _, target := range Targets {
		v := Verdict{Target: target, What: target.Figure}
		if target.Row != ours {
			v.What = target.Row + ": " + v.What
		}
		values, _ := of(r.Table(target.Table), target.Row, target.Figure)
		if target.Base != "" {
			base, name := of(r.Table(target.Table), target.Base, target.Figure)
			values = Ratios(values, base)
			v.What += " ÷ " + strings.TrimSuffix(target.Base+", "+name, ", ")
		}
		v.Got = values.Spread()
		value, least, _ := bound(target.Bound)
		v.Met = least && v.Got.Median >= value || !least && v.Got.Median <= value
		if !math.IsNaN(v.Got.Median) {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// Missed returns the verdicts whose target was missed.
func Missed(verdicts []Verdict) []Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.Met })
}

// best are rows of which the best one is meant.
var best = map[string][]string{
	"the best by hand":    {"sleep-retry", "redsync", "asynq retry"},
	"the best of several": {"bare x 2", "bare x 4", "bare x 8"},
}

// of returns the values of a row, or of what the targets call by another name: the best of some rows, which it then also
// names, and the largest or the smallest of all rows in each round.
func of(t *Table, row, figure string) (values Values, name string) {
	switch {
	case t == nil:
		return nil, ""
	case row == "the most expensive":
		return each(t, figure, slices.Max[[]float64]), ""
	case row == "the cheapest":
		return each(t, figure, slices.Min[[]float64]), ""
	case best[row] == nil:
		return t.Of(row, figure), ""
	}
	for _, peer := range best[row] {
		r := t.Row(peer)
		if r == nil || r.Note != "" || slices.Contains(r.Values["finished"], 0) {
			continue // not through in time, or with a fault: it does not count
		}
		if got := t.Of(peer, figure); name == "" || got.Median() > values.Median() {
			values, name = got, peer
		}
	}
	return values, name
}

// each returns one of the values of all rows for each round; NaN for a round in which a row has none.
func each(t *Table, figure string, pick func([]float64) float64) (picked Values) {
	if len(t.Rows) < 2 {
		return nil
	}
	for round := range t.Rows[0].Values[figure] {
		var values []float64
		for _, row := range t.Rows {
			if round < len(row.Values[figure]) {
				values = append(values, row.Values[figure][round])
			}
		}
		if len(values) < len(t.Rows) {
			values = []float64{math.NaN()}
		}
		picked = append(picked, pick(values)) // NaN when there is one among them
	}
	return picked
}
