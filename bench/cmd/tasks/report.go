package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/setting"
	"github.com/railtoken/railtoken/bench/internal/tasks"
)

// write prints everything as Markdown.
func write(out io.Writer, s setting.Setting, b *bench, tables []*table, wakes []*wake) {
	fmt.Fprintf(out, "```\n%s```\n\n", s)
	fmt.Fprintf(out, "Each figure is the median of %d rounds, with the quartiles in brackets; overlaps and lost tasks are the sum, the most runs the most of all.\n", b.reps)
	fmt.Fprintf(out, "A run that has not done all its tasks after %v is marked: then the time is a lower bound, and the shares are of what was done until then.\n",
		b.limits.Bound)
	fmt.Fprintln(out, "commands/conflict is what a run sends beyond as many tasks without conflicts, for each time that a task was parked; attempts in the slot,",
		"and looks at queues that are empty meanwhile, are among them: where hardly any task is parked it says little.")
	fmt.Fprintf(out, "Tasks may be retried %d times. Those who lock have %d slots.\n\n", b.limits.Retries, tasks.Slots)
	for _, c := range tasks.All {
		fmt.Fprintf(out, "- `%s`: %s\n", c.Name, c.Title)
	}
	for _, t := range tables {
		t.write(out)
	}
	if len(wakes) > 0 {
		writeWakes(out, wakes)
	}
}

var heads = []string{
	"", "makespan s", "of bare", "of ideal", "runs p50", "runs p99", "most runs", "≤2 runs", "overlaps", "lost",
	"commands/task", "parked/task", "commands/conflict",
}

func (t *table) write(out io.Writer) {
	fmt.Fprintf(out, "\n### %s: %s\n\nThe ideal, one task at a time for each key and no time wasted, is %s s.\n\n", t.Name, t.Title, number(t.Ideal.Seconds()))
	writeRow(out, heads)
	rule := slices.Repeat([]string{"---:"}, len(heads))
	rule[0] = "---"
	writeRow(out, rule)
	for _, r := range t.Rows {
		if len(r.Results) > 0 {
			writeRow(out, r.cells(t))
		}
	}
	for _, r := range t.Rows {
		for _, fault := range r.wrong() {
			fmt.Fprintf(out, "\n- %s: %s\n", r.Contestant, fault)
		}
		if len(r.Uncontended) > 0 {
			fmt.Fprintf(out, "\n- %s: %s commands for each task that meets no conflict\n", r.Contestant, number(r.uncontended()))
		}
	}
	if len(t.Mixed) > 0 {
		fmt.Fprintf(out, "\n- commands are an estimate: clients and scripts both call %s\n", strings.Join(t.Mixed, ", "))
	}
}

// cells returns the line of a contestant.
func (r *row) cells(t *table) []string {
	makespan := withQuartiles(r.spread(func(got tasks.Result) float64 { return got.Took.Seconds() }))
	if !r.finished() {
		done := r.spread(func(got tasks.Result) float64 { return float64(got.Done) }).Median
		makespan = fmt.Sprintf("> %s, did not finish: %.0f of %d done", makespan, done, r.Results[0].Tasks)
	}
	overlapping := strconv.Itoa(r.total(overlaps))
	if !r.Locks {
		overlapping = "(" + overlapping + ")"
	}
	most := slices.Max(r.each(func(got tasks.Result) float64 { return got.RunsAt(1) }))
	parked, perConflict := "", ""
	if len(r.Uncontended) > 0 {
		parked = number(r.spread(func(got tasks.Result) float64 { return float64(got.Parked) / float64(got.Tasks) }).Median)
		perConflict = withQuartiles(r.perConflict())
	}
	median := func(of func(tasks.Result) float64) string { return number(r.spread(of).Median) }
	return []string{
		r.Contestant, makespan, withQuartiles(r.share(t.row(tasks.Bare.Name))), number(r.ofIdeal(t.Ideal).Median),
		median(func(got tasks.Result) float64 { return got.RunsAt(0.5) }),
		median(func(got tasks.Result) float64 { return got.RunsAt(0.99) }),
		formatFloat(most, 0),
		formatFloat(100*r.spread(func(got tasks.Result) float64 { return got.AtMost(2) }).Median, 1) + " %",
		overlapping, strconv.Itoa(r.total(lost)),
		median(tasks.Result.PerTask), parked, perConflict,
	}
}

func writeWakes(out io.Writer, wakes []*wake) {
	fmt.Fprint(out, "\n### wake: from the end of the holder's handler to the start of the waiter's, ms\n\n")
	heads := []string{"TaskCheckInterval", "released by", "n", "p50", "p95", "most"}
	writeRow(out, heads)
	writeRow(out, []string{"---", "---", "---:", "---:", "---:", "---:"})
	for _, w := range wakes {
		for _, kind := range []struct {
			by    string
			times []time.Duration
		}{{"the same worker", w.Same}, {"another worker", w.Other}} {
			sorted := slices.Sorted(slices.Values(kind.times))
			cell := func(p float64) string {
				return number(float64(measure.Percentile(sorted, p)) / float64(time.Millisecond))
			}
			writeRow(out, []string{w.Interval.String(), kind.by, strconv.Itoa(len(sorted)), cell(0.5), cell(0.95), cell(1)})
		}
	}
}

func writeRow(out io.Writer, cells []string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func withQuartiles(s measure.Spread) string {
	if number(s.Median) == "-" {
		return "-"
	}
	return fmt.Sprintf("%s [%s %s]", number(s.Median), number(s.Low), number(s.High))
}

func formatFloat(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
