package instruments

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/middleware"
)

const (
	// gaugeAge is how long a reading is used: several scrapers cost no more than one.
	gaugeAge = 5 * time.Second
	// gaugeTimeout limits how long a scrape waits, so that counters can be scraped while Redis does not answer.
	gaugeTimeout = 2 * time.Second
)

// Gauge reads the gauges. It is safe for concurrent use.
type Gauge struct {
	inspector *inspect.Inspector
	reaches   reaches

	mu   sync.Mutex
	last *reading
}

// reading is one reading of all gauges. values is set when done is closed.
type reading struct {
	began  time.Time
	done   chan struct{}
	values []Measurement
}

// NewGauge returns a Gauge that reads from an Inspector; if it is nil, there are only the gauges of the workers that
// [Gauge.Observe] learns of.
func NewGauge(i *inspect.Inspector) *Gauge { return &Gauge{inspector: i} }

// Observe learns of workers that start in this process.
func (g *Gauge) Observe(e *middleware.Event) {
	if e.Reach != nil {
		g.reaches.add(e.Reach)
	}
}

// Read returns the gauges; those of the Inspector are at most 5 s old. What Redis does not tell is left out, and inspect.up is 0 then. Read returns
// after 2 s at the latest.
func (g *Gauge) Read(ctx context.Context) []Measurement {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	own := make(chan []Measurement, 1)
	go func() { own <- g.reaches.read(ctx) }()
	return append(g.inspected(ctx), <-own...)
}

// inspected returns the gauges of the Inspector.
func (g *Gauge) inspected(ctx context.Context) []Measurement {
	if g.inspector == nil {
		return nil
	}
	r := g.recent()
	select {
	case <-r.done:
		return slices.Clip(r.values)
	case <-ctx.Done():
		return []Measurement{up.of(0)}
	}
}

// recent returns the last reading if it is recent or goes on, and begins one otherwise. It goes on in the background
// because a client without ContextTimeoutEnabled does not end its calls with a context.
func (g *Gauge) recent() *reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last != nil {
		select {
		case <-g.last.done:
			if time.Since(g.last.began) < gaugeAge {
				return g.last
			}
		default:
			return g.last
		}
	}
	r := &reading{began: time.Now(), done: make(chan struct{})}
	g.last = r
	go func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
		defer cancel()
		r.values = g.read(ctx)
	}()
	return r
}

func (g *Gauge) read(ctx context.Context) (all []Measurement) {
	alive := 1.
	for _, part := range []func(context.Context) ([]Measurement, error){g.waiters, g.slots, g.nodes} {
		values, err := part(ctx)
		if err != nil {
			alive = 0
		}
		all = append(all, values...)
	}
	return append(all, up.of(alive))
}

func (g *Gauge) waiters(ctx context.Context) ([]Measurement, error) {
	queue := g.inspector.Queue().Inspector()
	n, err := queue.Count(ctx)
	if err != nil {
		return nil, err
	}
	longest, err := queue.Longest(ctx, 1)
	if err != nil {
		return []Measurement{parked.of(float64(n))}, err
	}
	age := time.Duration(0)
	if len(longest) > 0 {
		age = max(time.Since(longest[0].Since), 0)
	}
	return []Measurement{parked.of(float64(n)), oldestWait.of(age.Seconds())}, nil
}

func (g *Gauge) slots(ctx context.Context) ([]Measurement, error) {
	workers, err := g.inspector.Workers(ctx)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, w := range workers {
		n += w.Waiting
	}
	return []Measurement{slots.of(float64(n))}, nil
}

// nodes returns the gauges of the lock servers. One that does not answer has no vote.
func (g *Gauge) nodes(ctx context.Context) (all []Measurement, err error) {
	nodes, err := g.inspector.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.Addr] { // listed twice, which no telemetry library accepts
			continue
		}
		seen[n.Addr] = true
		vote := 0.
		if n.Err == nil && n.Refused == "" {
			vote = 1
		}
		addr := valid(n.Addr)
		all = append(all, votes.of(vote, addr), quarantined.of(n.VotesIn.Seconds(), addr))
	}
	return all, nil
}
