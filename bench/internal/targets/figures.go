package targets

import (
	"math"
	"slices"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// ours is the row that the others are compared with.
const ours = "railtoken"

// byHand are the patterns that people write themselves.
var byHand = []string{"sleep-retry", "redsync", "semaphore", "asynq retry, IsFailure=false", "asynq retry"}

// enough is the share of tasks that must have been parked for the commands of a conflict to mean something.
const enough = 0.05

type figureOf = func(*results.Table) (results.Values, string)

// figure is a column of a row.
func figure(row, column string) figureOf {
	return func(t *results.Table) (results.Values, string) { return t.Of(row, column), "" }
}

// versus is a column of ours by that of another row.
func versus(column, row string) figureOf { return ratio(column, ours, row) }

// ratio is a column of a row by that of another row.
func ratio(column, row, base string) figureOf {
	return func(t *results.Table) (results.Values, string) { return t.Against(column, row, base), "" }
}

// share is a column of ours by another column of ours.
func share(column, base string) figureOf {
	return func(t *results.Table) (results.Values, string) {
		return results.Ratios(t.Of(ours, column), t.Of(ours, base)), ""
	}
}

// slowdown is how much the outage slows us down, by how much it does so to a peer.
func slowdown(peer string) figureOf {
	of := func(t *results.Table, row string) results.Values {
		outage, healthy := t.Of(row, "outage p50 µs"), t.Of(row, "healthy p50 µs")
		all := make(results.Values, min(len(outage), len(healthy)))
		for i := range all {
			all[i] = outage[i] / healthy[i]
		}
		return all
	}
	return func(t *results.Table) (results.Values, string) { return results.Ratios(of(t, ours), of(t, peer)), "" }
}

// perConflict is not judged where hardly any task is parked.
func perConflict(t *results.Table) (results.Values, string) {
	perTask := t.Of(ours, "commands/conflict")
	if !(t.Of(ours, "parked/task").Median() >= enough) || math.IsNaN(perTask.Median()) {
		return nil, ""
	}
	return perTask, ""
}

// quickest is a column of ours by that of the quickest pattern written by hand.
func quickest(column string) figureOf { return overBest(column, ours, byHand) }

// overBest is a column of a row by that of the best of several peers. One that was not through in time, let tasks
// overlap or has another fault does not count.
func overBest(column, of string, peers []string) figureOf {
	return func(t *results.Table) (results.Values, string) {
		best := ""
		for _, name := range peers {
			row := t.Row(name)
			if row == nil || row.Note != "" || slices.Contains(row.Values["finished"], 0) {
				continue
			}
			if best == "" || row.Values[column].Median() > t.Of(best, column).Median() {
				best = name
			}
		}
		return t.Against(column, of, best), best
	}
}

// growth is, for each round that all rows have a value of, the largest of their values by the smallest.
func growth(column string) figureOf {
	return func(t *results.Table) (results.Values, string) {
		if len(t.Rows) < 2 {
			return nil, ""
		}
		var ratios results.Values
		for round := range t.Rows[0].Values[column] {
			var values []float64
			for _, row := range t.Rows {
				if round < len(row.Values[column]) {
					values = append(values, row.Values[column][round])
				}
			}
			ratio := slices.Max(values) / slices.Min(values)
			if len(values) == len(t.Rows) && !math.IsNaN(ratio) {
				ratios = append(ratios, ratio)
			}
		}
		return ratios, ""
	}
}
