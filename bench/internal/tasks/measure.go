package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// retries is how often asynq may retry a task: its own default.
const retries = 25

// seed makes the scenarios the same in every run.
const seed = 1

// rehearsal is the longest that a contestant is watched before it is measured.
const rehearsal = 500 * time.Millisecond

// Measure measures what workers get done when their tasks want the same keys, with railtoken and with what people use today. It returns
// the sections that were asked for; with an error those that it has come to.
func Measure(ctx context.Context, env report.Env) ([]*report.Section, error) {
	p := &part{Env: env}
	var sections []*report.Section
	for _, one := range []func(context.Context) (*report.Section, error){p.contended, p.noop, p.zipf, p.hotKey, p.wake} {
		s, err := one(ctx)
		if s != nil && len(s.Tables) > 0 {
			sections = append(sections, s)
		}
		if err != nil {
			return sections, err
		}
	}
	return sections, nil
}

// part is one run of this part of the benchmark.
type part struct{ report.Env }

// wants reports whether a table was asked for, by its own name or that of its section.
func (p *part) wants(section, table string) bool {
	return p.Run == nil || p.Run.MatchString(section) || p.Run.MatchString(table)
}

// share returns so many tasks as the scale says, two at least.
func (p *part) share(n int) int { return max(n*p.Scale/100, 2) }

// say tells how far the part has come.
func (p *part) say(format string, args ...any) {
	if p.Say != nil {
		p.Say(format, args...)
	}
}

// turn is one thing to be measured in each round.
type turn struct {
	contestant Contestant
	scenario   Scenario
	limits     Limits
	sent       *server.Sent // nil when commands are not counted
	add        func(Result)
}

// rounds lets everyone have a turn in each round.
func (p *part) rounds(ctx context.Context, turns []*turn) error {
	for round := range p.Reps {
		for _, i := range measure.Turns(len(turns), round) {
			one := turns[i]
			got, err := Run(ctx, p.Dir, one.contestant, one.scenario, one.limits, one.sent)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", one.scenario.Name, one.contestant.Name, err)
			}
			p.say("  round %d, %s, %s: %d of %d tasks in %v", round+1, one.scenario.Name, one.contestant.Name, got.Done, got.Tasks,
				got.Took.Round(time.Millisecond))
			one.add(got)
		}
	}
	return nil
}

// brief returns a time as the scale says, a tenth of a second at least.
func (p *part) brief(d time.Duration) time.Duration {
	return max(d*time.Duration(p.Scale)/100, 100*time.Millisecond)
}

// limits bound a contestant's run. Those whose tasks in conflict wait for asynq's timer do little in much time, at an even rate: they
// get a second more than the ideal takes, 2.5 to 3.5 s in all. The others have time to finish though they take three times the ideal.
func (p *part) limits(c Contestant, s Scenario) Limits {
	ideal := s.Ideal()
	if c.Timed {
		return Limits{Bound: p.brief(min(max(ideal+time.Second, 2500*time.Millisecond), 3500*time.Millisecond)), Retries: retries}
	}
	return Limits{Bound: 3*ideal + 3*time.Second, Retries: retries}
}

// note says in the row what must not be, and only that.
func note(r *report.Row, c Contestant, results []Result) {
	var faults []string
	overlaps, again := 0, 0
	for _, got := range results {
		if got.Err != "" && !slices.Contains(faults, got.Err) {
			faults = append(faults, got.Err)
		}
		overlaps += got.Overlaps
		again += got.Again
	}
	if c.Locks && overlaps > 0 {
		faults = append(faults, fmt.Sprintf("tasks of one key OVERLAPPED %d times", overlaps))
	}
	if again > 0 {
		faults = append(faults, fmt.Sprintf("%d tasks were done TWICE", again))
	}
	r.Note = strings.Join(faults, "; ")
}

// middle returns the values' median.
func middle(values []float64) float64 { return measure.NewSpread(values).Median }

// colFinished is 1 in rounds in which everything was done in time, else 0; it is not shown.
const colFinished = "finished"

func addFinished(r *report.Row, finished bool) {
	value := 0.0
	if finished {
		value = 1
	}
	r.Add(colFinished, value)
}

// aheadOf judges railtoken's rate by that of the quickest pattern written by hand that finished in each round and let no tasks overlap.
func aheadOf(t *report.Table, rate string) {
	best := ""
	for _, c := range ByHand {
		if !t.Has(c.Name) || t.Row(c.Name).Note != "" || slices.Contains(t.Row(c.Name).Values[colFinished], 0) {
			continue
		}
		if best == "" || t.Row(c.Name).Spread(rate).Median > t.Row(best).Spread(rate).Median {
			best = c.Name
		}
	}
	if best != "" {
		t.AtLeast(1, t.Name+": throughput of railtoken / that of "+best+", the quickest by hand", t.Against(rate, Railtoken.Name, best))
	}
}

// list describes contestants in Markdown.
func list(all ...Contestant) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "- `%s`: %s\n", c.Name, c.Title)
	}
	return b.String()
}

// in names the table in its error.
func in(table string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", table, err)
}
