package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
	"github.com/railtoken/railtoken/bench/internal/server"
)

const (
	efficiency = "of ideal"
	commands   = "commands/acquisition"
	unfairness = "longest wait ÷ mean"
	meanWait   = "mean wait ms"
	callersAll = 64
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

// contend lets the callers of all processes contend. The ideal needs only as many callers as there are keys.
func (c *crowd) contend(ctx context.Context, r request) (total measure.Contention, err error) {
	if len(c.children) == 0 {
		return c.own.contend(ctx, r)
	}
	asked := c.children[:min(len(c.children), r.Callers)]
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

// contention is one scenario of callers that want some keys.
type contention struct {
	at              place
	processes, keys int
}

func (c contention) five() bool { return c.at.servers > 1 }

// measure lets each contestant's callers contend.
func (c contention) measure(ctx context.Context, b *bench, table *report.Table) error {
	at, err := b.lab.site(ctx, c.at)
	if err != nil {
		return err
	}
	crowd, err := newCrowd(c.processes)
	if err != nil {
		return err
	}
	defer crowd.end()
	table.Columns = []string{efficiency, commands, unfairness, meanWait}
	kinds := contendedKinds(c.five())
	counters := make([]counter, len(kinds))
	for i, kind := range kinds {
		row := table.Row(kind.Name)
		if counters[i], err = c.learn(ctx, crowd, at, kind, 3*b.warmUp, row); err != nil {
			return fmt.Errorf("%s: %w", kind.Name, err)
		}
	}
	for round := range b.reps {
		rates := make([]float64, len(kinds)+1)
		for _, i := range measure.Turns(len(kinds)+1, round) {
			if i == len(kinds) { // the ideal
				r := request{Keys: make([]string, c.keys), Callers: c.keys, Window: window(b.warmUp, b.contendedSlice)}
				got, err := crowd.contend(ctx, r)
				if err != nil {
					return err
				}
				rates[i] = float64(got.Acquired)
				continue
			}
			r := c.request(kinds[i], at, b.warmUp, b.contendedSlice)
			counted := make(chan float64, 1)
			go func() { counted <- counters[i].in(ctx, r.Window) }()
			got, err := crowd.contend(ctx, r)
			if err != nil {
				return err
			}
			rates[i] = float64(got.Acquired)
			addContention(table.Row(kinds[i].Name), got, len(counters[i]) > 0, <-counted)
		}
		for i, kind := range kinds {
			table.Row(kind.Name).Add(efficiency, rates[i]/rates[len(kinds)])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	compare(table, "railtoken ÷ this (of ideal)", efficiency)
	return nil
}

func addContention(row *report.Row, got measure.Contention, counted bool, commandsSent float64) {
	each, longest, mean := commandsSent/float64(got.Acquired), float64(got.Longest)/float64(got.MeanWait()), got.MeanWait().Seconds()*1000
	if got.Acquired == 0 {
		each, longest, mean = math.NaN(), math.NaN(), math.NaN() // the rounds must stay side by side
		row.Note = "in some slices nobody got a key"
	}
	if counted {
		row.Add(commands, each)
	}
	row.Add(unfairness, longest)
	row.Add(meanWait, mean)
	if got.Failed > 0 {
		row.Note = fmt.Sprintf("waits failed (%d in one slice), such as: %s", got.Failed, firstLine(got.Err))
	}
	if got.Overlaps > 0 {
		row.Note = fmt.Sprintf("%d holds OVERLAPPED", got.Overlaps)
	}
}

func (c contention) request(kind contestant.Kind, at *site, warm, length time.Duration) request {
	r := request{Name: kind.Name, Five: c.five(), Addrs: at.addrs(kind), Callers: callersAll, Window: window(warm, length)}
	for i := range c.keys {
		r.Keys = append(r.Keys, "contended:"+kind.Name+":"+strconv.Itoa(i))
	}
	return r
}

func window(warm, length time.Duration) measure.Window {
	from := time.Now().Add(warm)
	return measure.Window{From: from, Until: from.Add(length)}
}

// learn warms a contestant up and finds out which commands of it come from clients.
func (c contention) learn(ctx context.Context, crowd *crowd, at *site, kind contestant.Kind, watch time.Duration, row *report.Row) (counter, error) {
	if kind.Store != contestant.OnRedis {
		_, err := crowd.contend(ctx, c.request(kind, at, 0, watch))
		return nil, err
	}
	var sent *server.Sent
	learned := make(chan error, 1)
	go func() {
		var err error
		sent, err = server.Learn(ctx, at.redis[0], watch)
		learned <- err
	}()
	_, err := crowd.contend(ctx, c.request(kind, at, 0, watch))
	if err := errors.Join(err, <-learned); err != nil {
		return nil, err
	}
	if mixed := sent.Mixed(); len(mixed) > 0 {
		slices.Sort(mixed)
		row.Note = "commands are an estimate: clients and scripts both call " + strings.Join(mixed, ", ")
	}
	counts := make(counter, len(at.redis))
	for i, s := range at.redis {
		counts[i] = sent.On(s)
	}
	return counts, nil
}

// counter counts the commands sent to all servers; to none of etcd, which tells of none.
type counter []*server.Sent

// in returns the commands that clients send in the window; NaN when the servers cannot say.
func (c counter) in(ctx context.Context, w measure.Window) float64 {
	if len(c) == 0 {
		return math.NaN()
	}
	before := c.at(ctx, w.From)
	return c.at(ctx, w.Until) - before
}

func (c counter) at(ctx context.Context, t time.Time) (total float64) {
	select {
	case <-time.After(time.Until(t)):
	case <-ctx.Done():
	}
	for _, sent := range c {
		n, err := sent.Count(ctx)
		if err != nil {
			return math.NaN()
		}
		total += n
	}
	return total
}
