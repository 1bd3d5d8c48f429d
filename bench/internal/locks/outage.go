package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/report"
)

const (
	healthy  = "healthy "
	outage   = "outage "
	slowdown = "outage ÷ healthy (p50)"
	tail     = "outage ÷ healthy (p99)"
)

// settle is how long a contestant works on servers that have come back, before the next ones go.
const settle = 200 * time.Millisecond

// outages measures one caller on five servers of which one does not serve, against as many healthy ones, in the same rounds.
// Of the broken servers another one is paused in each round; or else the first one is killed for good.
func outages(kind failure) func(context.Context, *bench, *report.Table) error {
	return func(ctx context.Context, b *bench, table *report.Table) error {
		whole, err := b.lab.site(ctx, place{servers: 5})
		if err != nil {
			return err
		}
		broken, err := b.lab.site(ctx, place{servers: 5, broken: kind})
		if err != nil {
			return err
		}
		well, endWell, err := openAll(contestant.FiveNodes, whole)
		if err != nil {
			return err
		}
		defer endWell()
		ill, endIll, err := openAll(contestant.FiveNodes, broken)
		if err != nil {
			return err
		}
		defer endIll()
		table.Columns = []string{healthy + p50, outage + p50, healthy + p99, outage + p99, healthy + rate, outage + rate, slowdown, tail}
		hangs := make([]<-chan struct{}, len(ill)) // closed when what hung in the last round has ended
		for i, o := range ill {
			table.Row(o.name)
			_, left := o.pairs(ctx, measure.Load{Callers: 1, For: settle})
			hangs[i] = closedAfter(left)
		}
		if kind == killed {
			if err := broken.kill(ctx); err != nil {
				return err
			}
		}
		for round := range b.reps {
			resume := func() error { return nil }
			if kind == paused {
				for i, o := range ill {
					<-hangs[i]
					_, left := o.pairs(ctx, measure.Load{Callers: 1, For: settle})
					left()
				}
				if resume, err = broken.pause(ctx, round); err != nil {
					return err
				}
			}
			for _, i := range measure.Turns(len(ill), round) {
				row := table.Row(ill[i].name)
				sample, left := well[i].pairs(ctx, measure.Load{Callers: 1, Warm: b.outageSlice / 5, For: b.outageSlice})
				left()
				addSample(row, sample, healthy)
				select {
				case <-hangs[i]:
					sample, left = ill[i].pairs(ctx, measure.Load{Callers: 1, For: b.outageSlice})
					hangs[i] = closedAfter(left)
				default: // its caller hangs on the killed server ever since the last round
					sample = measure.Sample{Latencies: []time.Duration{b.outageSlice}, Unfinished: 1}
				}
				addSample(row, sample, outage)
				row.Add(slowdown, last(row, outage+p50)/last(row, healthy+p50))
				row.Add(tail, last(row, outage+p99)/last(row, healthy+p99))
				if sample.Unfinished > 0 && sample.Latencies[len(sample.Latencies)-1] >= b.outageSlice/2 {
					row.Note = fmt.Sprintf("in some slices of %v a pair took the rest of the time, after %d that were done: its time is at least that",
						b.outageSlice, sample.Done)
				}
			}
			if err := resume(); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	}
}

func last(row *report.Row, column string) float64 {
	values := row.Values[column]
	return values[len(values)-1]
}

// pause stops a server and a follower of etcd, others in each round.
func (s *site) pause(ctx context.Context, round int) (resume func() error, err error) {
	follower, err := s.follower(ctx, round)
	if err != nil {
		return nil, err
	}
	victim := s.redis[round%len(s.redis)]
	if err := victim.Pause(); err != nil {
		return nil, err
	}
	if err := s.etcd.Pause(follower); err != nil {
		return nil, err
	}
	return func() error {
		if err := s.etcd.Resume(follower); err != nil {
			return err
		}
		return victim.Resume()
	}, nil
}

// kill ends a server and a follower of etcd.
func (s *site) kill(ctx context.Context) error {
	follower, err := s.follower(ctx, 0)
	if err != nil {
		return err
	}
	s.redis[0].Kill()
	s.etcd.Kill(follower)
	return nil
}

// follower returns a member that does not lead, another one in each round.
func (s *site) follower(ctx context.Context, round int) (int, error) {
	leader, err := s.etcd.Leader(ctx)
	if err != nil {
		return 0, err
	}
	n := len(s.etcd.Addrs())
	return (leader + 1 + round%(n-1)) % n, nil
}

func closedAfter(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}
