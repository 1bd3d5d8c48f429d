package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	efficiency = "of ideal"
	commands   = "commands/acq"
	unfairness = "longest/mean"
	meanWait   = "mean wait ms"
	ideal      = "ideal (no lock)"
	callersAll = 64
	warmUp     = 250 * time.Millisecond
)

// crowd are the processes that callers live in: this one, or some children.
type crowd struct {
	own      lockers
	children []*child
}

func newCrowd(processes int) (*crowd, error) {
	c := &crowd{own: lockers{}}
	if processes == 1 {
		return c, nil
	}
	for range processes {
		p, err := startChild()
		if err != nil {
			c.end()
			return nil, err
		}
		c.children = append(c.children, p)
	}
	return c, nil
}

func (c *crowd) end() {
	c.own.close()
	for _, p := range c.children {
		_ = p.end()
	}
}

// contend lets the callers of all processes contend. One caller alone is the ideal, in one process.
func (c *crowd) contend(ctx context.Context, r request) (total measure.Contention, err error) {
	if len(c.children) == 0 {
		return c.own.contend(ctx, r)
	}
	asked := c.children
	if r.Callers == 1 {
		asked = asked[:1]
	}
	r.Callers /= len(asked)
	for _, p := range asked {
		if err := p.ask(r); err != nil {
			return total, err
		}
	}
	for _, p := range asked {
		answer, err := p.answer()
		if err != nil {
			return total, fmt.Errorf("a child has ended: %w", err)
		}
		total.Add(answer)
	}
	return total, nil
}

// contended measures contestants for one key that callers of some processes want.
func (b *bench) contended(ctx context.Context, table *Table, s *server.Server, processes int) error {
	crowd, err := newCrowd(processes)
	if err != nil {
		return err
	}
	defer crowd.end()
	table.Columns = []string{efficiency, commands, unfairness, meanWait}
	names := []string{""}
	for _, kind := range contestant.Contended {
		names = append(names, kind.Name)
	}
	ask := func(name string, warm, length time.Duration) request {
		r := request{Name: name, Addrs: []string{s.Addr()}, Key: "contended:" + name, Callers: callersAll}
		if name == "" {
			r.Callers = 1
		}
		r.Window.From = time.Now().Add(warm)
		r.Window.Until = r.Window.From.Add(length)
		return r
	}
	// What each contestant sends, and a warm-up of all.
	sent := map[string]*server.Sent{}
	for _, name := range names[1:] {
		learned := make(chan error, 1)
		go func() {
			var err error
			sent[name], err = server.Learn(ctx, s, 3*warmUp)
			learned <- err
		}()
		_, err := crowd.contend(ctx, ask(name, 0, 3*warmUp))
		if learnErr := <-learned; err != nil || learnErr != nil {
			return fmt.Errorf("%s: %w", name, errors.Join(err, learnErr))
		}
		row := table.row(name)
		if mixed := sent[name].Mixed(); len(mixed) > 0 {
			slices.Sort(mixed)
			row.Note = "commands are an estimate: clients and scripts both call " + strings.Join(mixed, ", ")
		}
	}
	for round := range b.contendedReps {
		rates := map[string]float64{}
		for _, i := range measure.Turns(len(names), round) {
			name := names[i]
			r := ask(name, warmUp, b.contendedSlice)
			counted := make(chan float64, 1)
			if name != "" {
				go func() { counted <- countIn(ctx, sent[name], r.Window) }()
			}
			got, err := crowd.contend(ctx, r)
			if err != nil {
				return err
			}
			rates[name] = float64(got.Acquired) / b.contendedSlice.Seconds()
			if name == "" {
				continue
			}
			row := table.row(name)
			row.add(commands, <-counted/float64(got.Acquired))
			row.add(unfairness, float64(got.Longest)/float64(got.MeanWait()))
			row.add(meanWait, got.MeanWait().Seconds()*1000)
			if got.Failed > 0 {
				row.Note = fmt.Sprintf("waits failed, such as: %s", got.Err)
			}
			if got.Overlaps > 0 {
				row.Note = fmt.Sprintf("%d holds OVERLAPPED", got.Overlaps)
			}
		}
		for _, name := range names[1:] {
			table.row(name).add(efficiency, rates[name]/rates[""])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// countIn returns the commands that clients send in the window; NaN when the server cannot say.
func countIn(ctx context.Context, sent *server.Sent, w measure.Window) float64 {
	at := func(t time.Time) float64 {
		select {
		case <-time.After(time.Until(t)):
		case <-ctx.Done():
		}
		n, err := sent.Count(ctx)
		if err != nil {
			return math.NaN()
		}
		return n
	}
	before := at(w.From)
	return at(w.Until) - before
}
