package locks

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// counter counts the commands sent to all servers; none for etcd, which does not tell them.
type counter []*server.Sent

// learn warms a contestant up and finds out which of its commands come from clients.
func (c contention) learn(ctx context.Context, crowd crowd, at *site, kind contestant.Kind, watch time.Duration,
	row *results.Row,
) (counter, error) {
	warm := func() error {
		_, err := crowd.contend(c.request(kind, at, 0, watch))
		return err
	}
	if kind.Store != contestant.OnRedis {
		return nil, warm()
	}
	sent, err := server.Learn(ctx, at.redis[0], warm)
	if err != nil {
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

// in returns the commands that clients send in the window; NaN when the servers cannot say.
func (c counter) in(ctx context.Context, w measure.Window) float64 {
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
