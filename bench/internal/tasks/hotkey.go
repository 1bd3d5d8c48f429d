package tasks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	hotWork   = 5 * time.Millisecond
	otherWork = 20 * time.Millisecond
)

const (
	colAlone  = "alone, tasks/s"
	colBeside = "beside, tasks/s"
	colKept   = "beside / alone"
	colHot    = "hot ones done meanwhile"
	colAll    = "beside, tasks/s with the hot ones"
)

// BesideAHotKey returns tasks with keys of their own, and among the first half of them hot ones that all want the same key and are
// [Task.Aside].
func BesideAHotKey(others, hot int) Scenario {
	s := Scenario{Name: "hotkey", Bare: Slots, Title: fmt.Sprintf("%d tasks x %v with keys of their own beside %d x %v for one key",
		others, otherWork, hot, hotWork)}
	if hot == 0 {
		s.Name, s.Title = "hotkey, alone", "the same without the hot key"
	}
	added := 0
	for n := range others {
		for added < hot && added*others <= 2*n*hot {
			s.Tasks = append(s.Tasks, Task{Key: "hot", Work: hotWork, Type: DefaultType, Queue: DefaultQueue, Aside: true})
			added++
		}
		s.Tasks = append(s.Tasks, Task{Key: fmt.Sprint("own:", n), Work: otherWork, Type: DefaultType, Queue: DefaultQueue})
	}
	s.number()
	return s
}

// hotKey measures whether a hot key is in the way of the others.
func (p *part) hotKey(ctx context.Context) (*report.Section, error) {
	const name = "tasks-hotkey"
	if !p.wants(name, "hotkey") {
		return nil, nil //nolint:nilnil // no section was asked for
	}
	contestants := slices.Concat([]Contestant{Railtoken, RailtokenWait, RailtokenFIFO}, ByHand)
	others, hot := p.share(2000), p.share(200)
	beside, alone := BesideAHotKey(others, hot), BesideAHotKey(others, 0)
	t := &report.Table{
		Name: beside.Name, Title: beside.Title + fmt.Sprintf(", on %d slots", Slots),
		Columns: []string{colAlone, colBeside, colKept, colHot, colAll, colOurs},
	}
	s := &report.Section{Name: name, Title: "Other keys beside a hot one", Tables: []*report.Table{t}, Text: fmt.Sprintf(
		`%d tasks of %v, each with a key of its own, are in one queue with %d tasks of %v that all want the same key, spread over the first half of the
others. How many of the others are done in a second, until the last of them is done, as a share of what it is without the hot tasks in
the same round? The hot ones get their turns meanwhile, each of which takes up one of the %d slots, so that %.2f is about all there is. Whoever
waits in its slot for the hot key keeps it from the others. Tasks that are put off do not, however long that is; so the table shows as well how many
of the hot ones were done until the last of the others was, and the throughput of both together, by which `+"`%s`"+` compares; ours is
to be ahead of whoever does them all.
`, others, otherWork, hot, hotWork, Slots, float64(Slots-1)/Slots, colOurs)}
	p.say("%s: %s", beside.Name, t.Title)
	results := map[string][]Result{}
	var turns []*turn
	for _, c := range contestants {
		r := t.Row(c.Name)
		bound := Limits{Bound: 8*beside.Ideal() + 3*time.Second, Retries: retries}
		turns = append(turns,
			&turn{contestant: c, scenario: alone, limits: bound, add: func(got Result) {
				r.Add(colAlone, got.Rate())
				results[c.Name] = append(results[c.Name], got)
			}},
			&turn{contestant: c, scenario: beside, limits: bound, add: func(got Result) {
				addFinished(r, got.Finished && got.AsideDone == hot)
				r.Add(colBeside, got.Rate())
				r.Add(colHot, float64(got.AsideDone))
				r.Add(colAll, got.Rate()+float64(got.AsideDone)/got.Took.Seconds())
				results[c.Name] = append(results[c.Name], got)
			}})
	}
	err := p.rounds(ctx, turns)
	for _, c := range contestants {
		r := t.Row(c.Name)
		r.Values[colKept] = r.Ratio(colBeside, colAlone)
		if c.ByHand {
			r.Values[colOurs] = t.Against(colAll, Railtoken.Name, c.Name)
		}
		note(r, c, results[c.Name])
	}
	t.AtLeast(0.9, "throughput of other keys beside a hot key / without it, railtoken", t.Row(Railtoken.Name).Values[colKept])
	aheadOf(t, colAll)
	s.Charts = []*report.Chart{{
		File: "tasks-hotkey", Title: "Throughput of other keys beside a hot one, as a share of that without it", YLabel: colKept, Target: 0.9,
		Groups: []report.Group{report.BarsOf("other keys", t, colKept)},
	}}
	return s, in(t.Name, err)
}
