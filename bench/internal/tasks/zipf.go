package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	zipfKeys = 1000
	zipfWork = 5 * time.Millisecond
)

// exponents say how much more often a key is wanted than the next: with 0 all are alike.
var exponents = []float64{0.8, 1.0, 1.2, 1.4}

// Zipf returns n tasks whose keys are wanted as often as Zipf's law says: the one at place r of so many keys in proportion to
// 1/r^exponent. It is the same for the same seed.
func Zipf(name string, exponent float64, keys, n int, work time.Duration, seed uint64) Scenario {
	sums := make([]float64, keys)
	sum := 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -exponent)
		sums[i] = sum
	}
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	s := Scenario{Name: name, Bare: Slots}
	for range n {
		place, _ := slices.BinarySearch(sums, rng.Float64()*sum)
		s.Tasks = append(s.Tasks, Task{Key: fmt.Sprint("key:", min(place, keys-1)), Work: work, Type: DefaultType, Queue: DefaultQueue})
	}
	s.number()
	s.Title = fmt.Sprintf("%d tasks x %v, keys by Zipf's law with exponent %.1f: %d of %d keys", n, work, exponent, s.Keys(), keys)
	return s
}

// zipf measures how the throughput falls as more and more tasks want the same few keys.
func (p *part) zipf(ctx context.Context) (*report.Section, error) {
	const name = "tasks-zipf"
	if !p.wants(name, "zipf") {
		return nil, nil //nolint:nilnil // no section was asked for
	}
	contestants := []Contestant{Bare, Railtoken, SleepRetry, RetryUncounted}
	byHand := []string{SleepRetry.Name, RetryUncounted.Name}
	n := p.share(2000)
	t := &report.Table{
		Name: "zipf", Title: fmt.Sprintf("%d tasks x %v, %d keys by Zipf's law, by exponent: throughput as a share of the ideal", n, zipfWork, zipfKeys),
		Columns: []string{"ideal s"},
	}
	s := &report.Section{Name: name, Title: "Some keys are wanted more than others", Tables: []*report.Table{t}, Text: fmt.Sprintf(
		`%d tasks of %v whose keys are drawn from %d by Zipf's law: the larger the exponent, the larger the share of the busiest key. Everyone has
%d slots. The figures are shares of the ideal, in which the busiest key, or all slots, never rest. Bare takes no lock and works on the busiest
key many times at once, so it exceeds the ideal where that key alone decides: it shows what the order of one at a time costs by itself.
Whoever is not through in time is rated by what was done until then, which flatters it.
`, n, zipfWork, zipfKeys, Slots)}
	chart := &report.Chart{
		File: "tasks-zipf", Title: "Throughput as a share of the ideal, by the exponent of the keys", XLabel: "exponent", YLabel: colOfIdeal,
	}
	for _, c := range contestants {
		t.Columns = append(t.Columns, c.Name)
		chart.Series = append(chart.Series, report.Series{Name: c.Name})
	}
	for _, name := range byHand {
		t.Columns = append(t.Columns, Railtoken.Name+" / "+name)
	}
	s.Charts = []*report.Chart{chart}
	for _, exponent := range exponents {
		scenario := Zipf(fmt.Sprintf("zipf %.1f", exponent), exponent, zipfKeys, n, zipfWork, seed)
		p.say("%s: %s", scenario.Name, scenario.Title)
		row := t.Row(fmt.Sprintf("%.1f", exponent))
		one := &report.Table{Name: scenario.Name}
		err := p.simple(ctx, one, scenario, contestants, p.limits, func(r *report.Row, got Result) {
			r.Add(colRate, got.Rate())
			r.Add(colOfIdeal, got.Rate()/(float64(got.Tasks)/scenario.Ideal().Seconds()))
		})
		row.Set("ideal s", fmt.Sprintf("%.2f", scenario.Ideal().Seconds()))
		var notes []string
		for i, c := range contestants {
			from := one.Row(c.Name)
			row.Values[c.Name] = from.Values[colOfIdeal]
			chart.Series[i].Points = append(chart.Series[i].Points, report.Point{X: exponent, Spread: row.Spread(c.Name)})
			if from.Note != "" {
				notes = append(notes, c.Name+": "+from.Note)
			}
		}
		row.Note = strings.Join(notes, "; ")
		for _, name := range byHand {
			row.Values[Railtoken.Name+" / "+name] = one.Against(colRate, Railtoken.Name, name)
		}
		aheadOf(one, colRate)
		t.Targets = append(t.Targets, one.Targets...)
		if err != nil {
			return s, in(scenario.Name, err)
		}
	}
	return s, nil
}
