// Package measure lets contestants take turns, in rounds, and puts loads on them: pairs of acquire and release, and
// callers that contend for keys. It measures what each unit of a load costs: time, processor time of this process and
// of the redis-servers, commands and memory.
package measure

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/railtoken/railtoken/bench/internal/results"
)

// Env tells a part of the benchmark what to measure, how much of it, and where the figures go.
type Env struct {
	// Dir is for files of servers; it is removed at the end.
	Dir string
	// Rounds is in how many rounds to measure, 5 or more for figures to quote.
	Rounds int
	// Scale is how many percent of the usual work to do: 100, less for a first look.
	Scale int
	// Run chooses tables by their names or those of their groups; nil chooses all.
	Run *regexp.Regexp
	// Orders is a CSV file with orders; generated ones are used when it is empty.
	Orders string
	// Say reports progress; nil disables it.
	Say func(format string, args ...any)
	// Results is what tables are added to.
	Results *results.Results
}

// Wants reports whether one of these names was asked for.
func (e *Env) Wants(names ...string) bool {
	for _, name := range names {
		if e.Run == nil || e.Run.MatchString(name) {
			return true
		}
	}
	return false
}

// Contest is one table of the report.
type Contest struct {
	Group, Name, Title string
	// Rows are those of the contestants, in the order in which they are shown. More may come later.
	Rows []string
	// Measure fills the table.
	Measure func(ctx context.Context, t *results.Table) error
}

// Measure measures the contests that were asked for. What was measured before an error stays.
func (e *Env) Measure(ctx context.Context, contests ...Contest) error {
	for _, c := range contests {
		if !e.Wants(c.Group, c.Name) {
			continue
		}
		e.Report("%s: %s", c.Name, c.Title)
		t := &results.Table{Name: c.Name, Title: c.Title}
		e.Results.Tables = append(e.Results.Tables, t)
		for _, row := range c.Rows {
			t.AddRow(row)
		}
		if err := c.Measure(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// Report reports progress.
func (e *Env) Report(format string, args ...any) {
	if e.Say != nil {
		e.Say(format, args...)
	}
}

// Share returns as much of n as the scale says, least at least.
func (e *Env) Share(n, least int) int { return max(n*e.Scale/100, least) }

// Span returns as much of d as the scale says, least at least.
func (e *Env) Span(d, least time.Duration) time.Duration {
	return max(d*time.Duration(e.Scale)/100, least)
}

// Each gives each of n contestants a turn in each round, until the first error or the end of ctx.
func (e *Env) Each(ctx context.Context, n int, turn func(round, i int) error) error {
	for round := range e.Rounds {
		for _, i := range Turns(n, round) {
			if err := turn(round, i); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Turns returns the order in which n contestants are measured in a round: it begins with another one each time, and
// every other time it runs backwards, so that none always follows the same one and a slow change of the machine meets
// all alike.
func Turns(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round/2) % n
		if round%2 == 1 {
			order[i] = n - 1 - order[i]
		}
	}
	return order
}
