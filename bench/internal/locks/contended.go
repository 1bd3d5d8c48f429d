package locks

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
)

// callersAll is how many callers contend, in all processes together.
const callersAll = 64

// contention is callers that want the same keys.
type contention struct{ processes, keys int }

// measure lets each contestant's callers contend, and in each round also callers without a lock, one for each key: the
// ideal.
func (c contention) measure(ctx context.Context, b *bench, t *results.Table, sites []*site) error {
	at := sites[0]
	crowd, err := newCrowd(c.processes)
	if err != nil {
		return err
	}
	defer crowd.end()
	kinds := b.installed(t, contendedKinds(len(at.redis)))
	warm, long := b.span(warmUp), b.span(contendedSlice)
	requests, sent := make([]Request, len(kinds)+1), make([]*server.Sent, len(kinds))
	for i, kind := range kinds {
		t.AddRow(kind.Name) // in this order
		requests[i] = c.request(kind, at)
		if sent[i], err = learn(ctx, crowd, at, kind, requests[i], 3*warm); err != nil {
			return fmt.Errorf("%s: %w", kind.Name, err)
		}
	}
	requests[len(kinds)] = Request{Keys: make([]string, c.keys), Callers: c.keys}
	acquired := make([]results.Values, len(requests)) // by round
	err = b.Each(ctx, len(requests), func(_, i int) error {
		r := requests[i]
		r.Window = measure.After(warm, long)
		commands := make(chan float64, 1)
		if i < len(kinds) {
			go func() { commands <- countIn(ctx, r.Window, sent[i], at.redis) }()
		}
		got, err := crowd.contend(r)
		if err != nil {
			return err
		}
		acquired[i] = append(acquired[i], float64(got.Done()))
		if i < len(kinds) {
			addContention(t, kinds[i], got, <-commands)
		}
		return nil
	})
	for i, kind := range kinds {
		for _, share := range results.Ratios(acquired[i], acquired[len(kinds)]) {
			t.Add(kind.Name, "of ideal", share)
		}
	}
	return err
}

func (c contention) request(kind Kind, at *site) Request {
	r := Request{Name: kind.Name, Addrs: at.addrs[kind.Store], Callers: callersAll}
	for i := range c.keys {
		r.Keys = append(r.Keys, "contended:"+kind.Name+":"+strconv.Itoa(i))
	}
	return r
}

// learn warms a contestant up and finds out which of its commands come from clients; nil for etcd, which does not tell
// its commands.
func learn(
	ctx context.Context, crowd crowd, at *site, kind Kind, r Request, watch time.Duration,
) (*server.Sent, error) {
	warm := func() error {
		r.Window = measure.After(0, watch)
		_, err := crowd.contend(r)
		return err
	}
	if kind.Store == OnRedis {
		return server.Learn(ctx, at.redis[0], warm)
	}
	return nil, warm()
}

// countIn returns the commands that clients send in the window; NaN when the servers cannot say.
func countIn(ctx context.Context, w measure.Window, sent *server.Sent, servers fleet) float64 {
	var counts [2]float64
	for i, at := range []time.Time{w.From, w.Until} {
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
		}
		var err error
		if counts[i], err = sent.Count(ctx, servers...); err != nil {
			return math.NaN()
		}
	}
	return counts[1] - counts[0]
}

func addContention(t *results.Table, kind Kind, got measure.Sample, commands float64) {
	row := t.Row(kind.Name)
	acquired, waited := float64(got.Done()), time.Duration(0)
	for _, wait := range got.Latencies {
		waited += wait
	}
	each, longest := math.NaN(), math.NaN() // the rounds must stay side by side
	if all := got.Sorted(); acquired > 0 {
		each, longest = commands/acquired, float64(all[len(all)-1])/(float64(waited)/acquired)
	} else {
		row.Note = "in some slices no caller got a key"
	}
	t.Add(kind.Name, "acquisitions", acquired)
	if kind.Store == OnRedis {
		t.Add(kind.Name, "commands/acquisition", each)
	}
	t.Add(kind.Name, "longest/mean wait", longest)
	if got.Failed > 0 {
		row.Note = fmt.Sprintf("waits failed (%d in one slice), such as: %s", got.Failed, firstLine(got.Err))
	}
	if got.Overlaps > 0 {
		row.Note = fmt.Sprintf("%d holds OVERLAPPED", got.Overlaps)
	}
}
