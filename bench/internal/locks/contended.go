package locks

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

const (
	efficiency = "of ideal"
	commands   = "commands/acquisition"
	unfairness = "longest wait ÷ mean"
	callersAll = 64
)

// contention is one scenario of callers that want some keys.
type contention struct {
	at              place
	processes, keys int
}

func (c contention) five() bool { return c.at.servers > 1 }

// measure lets each contestant's callers contend.
func (c contention) measure(ctx context.Context, b *bench, t *results.Table) error {
	at, err := b.lab.site(ctx, c.at)
	if err != nil {
		return err
	}
	crowd, err := newCrowd(c.processes)
	if err != nil {
		return err
	}
	defer crowd.end()
	kinds := b.lab.installed(t, contendedKinds(c.five()))
	warm, long := b.span(warmUp), b.span(contendedSlice)
	counters := make([]counter, len(kinds))
	for i, kind := range kinds {
		row := t.AddRow(kind.Name)
		if counters[i], err = c.learn(ctx, crowd, at, kind, 3*warm, row); err != nil {
			return fmt.Errorf("%s: %w", kind.Name, err)
		}
	}
	acquired := make([][]float64, len(kinds)+1) // by round
	ideal := len(kinds)
	err = b.Each(ctx, len(kinds)+1, func(_, i int) error {
		r := request{Keys: make([]string, c.keys), Callers: c.keys, Window: window(warm, long)}
		counted := make(chan float64, 1)
		if i == ideal {
			counted <- 0
		} else {
			r = c.request(kinds[i], at, warm, long)
			go func() { counted <- counters[i].in(ctx, r.Window) }()
		}
		got, err := crowd.contend(r)
		sent := <-counted
		if err != nil {
			return err
		}
		acquired[i] = append(acquired[i], float64(got.Acquired))
		if i != ideal {
			addContention(t, kinds[i].Name, got, len(counters[i]) > 0, sent)
		}
		return nil
	})
	for round, most := range acquired[ideal] {
		for i, kind := range kinds {
			if round < len(acquired[i]) {
				t.Add(kind.Name, efficiency, acquired[i][round]/most)
			}
		}
	}
	return err
}

func addContention(t *results.Table, name string, got measure.Contention, counted bool, sent float64) {
	row := t.Row(name)
	each, mean := sent/float64(got.Acquired), got.MeanWait()
	longest := float64(got.Longest) / float64(mean)
	if got.Acquired == 0 {
		each, longest = math.NaN(), math.NaN() // the rounds must stay side by side
		row.Note = "in some slices no caller got a key"
	}
	if counted {
		t.Add(name, commands, each)
	}
	t.Add(name, unfairness, longest)
	if got.Failed > 0 {
		row.Note = fmt.Sprintf("waits failed (%d in one slice), such as: %s", got.Failed, firstLine(got.Err))
	}
	if got.Overlaps > 0 {
		row.Note = fmt.Sprintf("%d holds OVERLAPPED", got.Overlaps)
	}
}

func (c contention) request(kind contestant.Kind, at *site, warm, length time.Duration) request {
	r := request{
		Name: kind.Name, Five: c.five(), Addrs: at.addrs[kind.Store], Callers: callersAll, Window: window(warm, length),
	}
	for i := range c.keys {
		r.Keys = append(r.Keys, "contended:"+kind.Name+":"+strconv.Itoa(i))
	}
	return r
}

func window(warm, length time.Duration) measure.Window {
	from := time.Now().Add(warm)
	return measure.Window{From: from, Until: from.Add(length)}
}
