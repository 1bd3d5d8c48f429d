package tasks

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// contendedWork and briefWork are how long tasks take.
const (
	contendedWork = 20 * time.Millisecond
	briefWork     = 5 * time.Millisecond
)

// enough is the share of tasks that must have been parked for the commands of a conflict to mean something.
const enough = 0.05

// The columns of contended tables. Rates are for the ratios and not shown.
const (
	colRate        = "tasks/s"
	colMakespan    = "makespan s"
	colOfBare      = "of bare"
	colOfIdeal     = "of ideal"
	colOurs        = "railtoken / this"
	colRuns50      = "runs p50"
	colRuns99      = "runs p99"
	colRunsMost    = "most runs"
	colTwice       = "≤2 runs"
	colPerTask     = "commands/task"
	colPerAlone    = "commands/task alone"
	colParked      = "parked/task"
	colPerConflict = "commands/conflict"
	colOverlaps    = "overlaps"
	colLost        = "lost"
)

var contendedColumns = []string{
	colMakespan, colOfBare, colOfIdeal, colOurs, colRuns50, colRuns99, colRunsMost, colTwice, colPerTask, colPerAlone, colParked, colPerConflict, colOverlaps, colLost,
}

// contest is a scenario, who takes part, and what share of bare is to be reached.
type contest struct {
	scenario    Scenario
	contestants []Contestant
	ofBare      float64 // 0 for none
}

// contended measures tasks that want the same keys.
func (p *part) contended(ctx context.Context) (*report.Section, error) {
	s := &report.Section{Name: "tasks-contended", Title: "Tasks that want the same keys", Text: contendedText()}
	contests, err := p.contests()
	if err != nil {
		return s, err
	}
	chart := &report.Chart{
		File: "tasks-contended", Title: "Throughput as a share of bare asynq, which takes no lock", YLabel: "of bare", Target: 0.92,
	}
	for _, c := range contests {
		if !p.wants(s.Name, c.scenario.Name) {
			continue
		}
		p.say("%s: %s", c.scenario.Name, c.scenario.Title)
		t, err := p.contest(ctx, c)
		s.Tables = append(s.Tables, t)
		if err != nil {
			return s, in(c.scenario.Name, err)
		}
		group := report.BarsOf(c.scenario.Name, t, colOfBare)
		group.Bars = slices.DeleteFunc(group.Bars, func(b report.Bar) bool { return b.Name == Bare.Name || b.Name == RailtokenFailFast.Name })
		chart.Groups = append(chart.Groups, group)
	}
	s.Charts = append(s.Charts, chart)
	return s, nil
}

// contests returns all of them, in the order in which they run.
func (p *part) contests() ([]contest, error) {
	orders, from := GenerateOrders(p.share(5000), seed), "generated "
	if p.Orders != "" {
		var err error
		if orders, err = ReadOrdersFile(p.Orders); err != nil {
			return nil, err
		}
		from = "real "
	}
	byOrder, bySeller := ByOrder(orders, p.share(3000), contendedWork, seed), BySeller(orders, p.share(1500), briefWork, seed)
	byOrder.Title, bySeller.Title = from+byOrder.Title, from+bySeller.Title
	everyone := slices.Concat([]Contestant{Bare}, Ours, ByHand)
	short := slices.Concat([]Contestant{Bare, Railtoken}, ByHand)
	return []contest{
		{Repeat("K1", 1, p.share(500), briefWork, seed), everyone, 0.92},
		{Repeat("K4", 4, p.share(250), contendedWork, seed), everyone, 0.92},
		{Repeat("K20", 20, p.share(100), briefWork, seed), everyone, 0.92},
		{byOrder, short, 0.9},
		{bySeller, short, 0},
	}, nil
}

// contest measures one of them. The table holds what was measured also with an error.
func (p *part) contest(ctx context.Context, c contest) (*report.Table, error) {
	s := c.scenario
	t := &report.Table{
		Name: s.Name, Title: fmt.Sprintf("%s; the ideal is %.2f s", s.Title, s.Ideal().Seconds()), Columns: contendedColumns,
	}
	results := map[string][]Result{}
	alone := map[string]Result{}
	var mixed []string
	var turns []*turn
	for _, one := range c.contestants {
		t.Row(one.Name) // in this order
		sent, err := p.rehearse(ctx, &mixed, one, s)
		if err != nil {
			return t, err
		}
		turns = append(turns, &turn{contestant: one, scenario: s, limits: p.limits(one, s), sent: sent, add: func(got Result) {
			results[one.Name] = append(results[one.Name], got)
		}})
		if one.Parks {
			if alone[one.Name], err = p.withoutConflicts(ctx, t, &mixed, one, s); err != nil {
				return t, err
			}
		}
	}
	err := p.rounds(ctx, turns)
	for _, one := range c.contestants {
		fill(t.Row(one.Name), one, s, results[one.Name], alone[one.Name])
	}
	for _, r := range t.Rows {
		r.Values[colOfBare] = t.Against(colRate, r.Name, Bare.Name)
	}
	for _, one := range ByHand {
		t.Row(one.Name).Values[colOurs] = t.Against(colRate, Railtoken.Name, one.Name)
	}
	ours := t.Row(Railtoken.Name)
	if c.ofBare > 0 {
		t.AtLeast(c.ofBare, t.Name+": throughput of railtoken / bare", ours.Values[colOfBare])
	}
	if conflict := middle(ours.Values[colPerConflict]); middle(ours.Values[colParked]) >= enough && !math.IsNaN(conflict) {
		t.AtMost(6, t.Name+": commands of railtoken for each conflict", ours.Values[colPerConflict])
	}
	t.AtLeast(0.99, t.Name+": share of railtoken's tasks that a worker runs twice at most", ours.Values[colTwice])
	aheadOf(t, colRate)
	slices.Sort(mixed)
	if len(mixed) > 0 {
		t.Notes = append(t.Notes, "commands are an estimate: clients and scripts both call "+strings.Join(mixed, ", "))
	}
	return t, err
}

// rehearse learns which commands a contestant sends, and adds those to mixed that cannot be told from the ones of scripts.
func (p *part) rehearse(ctx context.Context, mixed *[]string, c Contestant, s Scenario) (*server.Sent, error) {
	sent, err := Rehearse(ctx, p.Dir, c, s, Limits{Bound: p.brief(rehearsal), Retries: retries})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	for _, name := range sent.Mixed() {
		if !slices.Contains(*mixed, name) {
			*mixed = append(*mixed, name)
		}
	}
	return sent, nil
}

// withoutConflicts returns what tasks of the scenario's kind cost the contestant when each has a key of its own.
func (p *part) withoutConflicts(ctx context.Context, t *report.Table, mixed *[]string, c Contestant, s Scenario) (Result, error) {
	s = s.Distinct()
	s.Tasks = s.Tasks[:min(len(s.Tasks), p.share(1000))]
	sent, err := p.rehearse(ctx, mixed, c, s)
	if err != nil {
		return Result{}, err
	}
	got, err := Run(ctx, p.Dir, c, s, p.limits(c, s), sent)
	if err != nil {
		return got, fmt.Errorf("%s: %w", c.Name, err)
	}
	t.Row(c.Name).Add(colPerAlone, got.PerTask())
	return got, nil
}

// fill enters the results of all rounds. alone is that of tasks without conflicts, for those that park.
func fill(r *report.Row, c Contestant, s Scenario, results []Result, alone Result) {
	late, overlaps, lost, most := 0, 0, 0, 0.0
	var done []float64
	for _, got := range results {
		addFinished(r, got.Finished)
		r.Add(colRate, got.Rate())
		r.Add(colMakespan, got.Took.Seconds())
		r.Add(colOfIdeal, got.Rate()/(float64(got.Tasks)/s.Ideal().Seconds()))
		r.Add(colRuns50, got.RunsAt(0.5))
		r.Add(colRuns99, got.RunsAt(0.99))
		r.Add(colTwice, got.AtMost(2))
		r.Add(colPerTask, got.PerTask())
		if c.Parks {
			r.Add(colParked, float64(got.Parked)/float64(got.Tasks))
			r.Add(colPerConflict, got.PerConflict(alone))
		}
		if !got.Finished {
			late++
		}
		overlaps += got.Overlaps
		lost += got.Lost
		most = math.Max(most, got.RunsAt(1))
		done = append(done, float64(got.Done))
	}
	took := r.Spread(colMakespan).Median
	switch {
	case c.Refuses:
		r.Set(colMakespan, fmt.Sprintf("%.2f: %.0f of %d done, the others refused", took, middle(done), len(s.Tasks)))
	case late > 0 && late < len(results):
		r.Set(colMakespan, fmt.Sprintf("%.2f, not through in %d of %d runs", took, late, len(results)))
	case late > 0:
		r.Set(colMakespan, fmt.Sprintf("> %.1f: %.0f of %d done", took, middle(done), len(s.Tasks)))
	}
	r.Set(colRunsMost, fmt.Sprintf("%.0f", most))
	r.Set(colLost, fmt.Sprint(lost))
	if c.Refuses {
		r.Set(colLost, "-")
	}
	r.Set(colOverlaps, fmt.Sprint(overlaps))
	if !c.Locks {
		r.Set(colOverlaps, fmt.Sprintf("(%d)", overlaps))
	}
	note(r, c, results)
}
