package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/contestant"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

const (
	healthy = "healthy "
	outage  = "outage "
)

// settle is how long a contestant works on servers that have come back, before the next ones go.
const settle = 200 * time.Millisecond

// outages measures one caller on five servers of which one does not serve, against as many healthy ones, in the same
// rounds. Another one is paused in each round; or else the first one is killed for good.
func outages(kill bool) func(context.Context, *bench, *results.Table) error {
	return func(ctx context.Context, b *bench, t *results.Table) error {
		whole, err := b.lab.site(ctx, place{servers: 5})
		if err != nil {
			return err
		}
		broken, err := b.lab.site(ctx, place{servers: 5, broken: true})
		if err != nil {
			return err
		}
		kinds := b.lab.installed(t, contestant.FiveNodes)
		well, endWell, err := openAll(kinds, whole, 1)
		if err != nil {
			return err
		}
		defer endWell()
		ill, endIll, err := openAll(kinds, broken, 1)
		if err != nil {
			return err
		}
		defer endIll()
		o := outageRun{bench: b, table: t, site: broken, well: well, ill: ill, hangs: make([]<-chan struct{}, len(ill))}
		for i := range ill {
			t.AddRow(ill[i].Name)
			_, left := ill[i].pairs(ctx, measure.Load{Callers: 1, For: settle})
			o.hangs[i] = closedAfter(left)
		}
		if kill {
			if err := broken.kill(ctx); err != nil {
				return err
			}
		}
		for round := range b.Rounds {
			if err := o.round(ctx, round, !kill); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
}

// outageRun is the contestants on healthy servers and on those of which one is broken.
type outageRun struct {
	*bench

	table     *results.Table
	site      *site
	well, ill []*opened
	hangs     []<-chan struct{} // closed when what hung in the last round has ended
}

func (o *outageRun) round(ctx context.Context, round int, pause bool) (err error) {
	if pause {
		for i := range o.ill {
			<-o.hangs[i]
			_, left := o.ill[i].pairs(ctx, measure.Load{Callers: 1, For: settle})
			left()
		}
		var resume func() error
		if resume, err = o.site.pause(ctx, round); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, resume()) }()
	}
	for _, i := range measure.Turns(len(o.ill), round) {
		o.turn(ctx, i)
	}
	return ctx.Err()
}

func (o *outageRun) turn(ctx context.Context, i int) {
	name, long := o.ill[i].Name, o.span(outageSlice)
	sample, left := o.well[i].pairs(ctx, measure.Load{Callers: 1, Warm: long / 5, For: long})
	left()
	addSample(o.table, name, sample, healthy)
	select {
	case <-o.hangs[i]:
		sample, left = o.ill[i].pairs(ctx, measure.Load{Callers: 1, For: long})
		o.hangs[i] = closedAfter(left)
	default: // its caller hangs on the killed server ever since the last round
		sample = measure.Sample{Latencies: []time.Duration{long}, Unfinished: 1}
	}
	addSample(o.table, name, sample, outage)
	if sample.Unfinished > 0 && sample.Latencies[len(sample.Latencies)-1] >= long/2 {
		o.table.Row(name).Note = fmt.Sprintf("in some slices of %v a pair hung until the end: it takes at least that long", long)
	}
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
	if s.etcd == nil {
		return victim.Resume, nil
	}
	return func() error { return errors.Join(s.etcd.Resume(follower), victim.Resume()) }, s.etcd.Pause(follower)
}

// kill ends a server and a follower of etcd.
func (s *site) kill(ctx context.Context) error {
	follower, err := s.follower(ctx, 0)
	if err == nil {
		s.redis[0].Kill()
	}
	if err == nil && s.etcd != nil {
		s.etcd.Kill(follower)
	}
	return err
}

// follower returns a member that does not lead, another one in each round. An election would take longer than a slice.
func (s *site) follower(ctx context.Context, round int) (int, error) {
	if s.etcd == nil {
		return 0, nil
	}
	leader, err := s.etcd.Leader(ctx)
	n := len(s.etcd.Addrs())
	return (leader + 1 + round%(n-1)) % n, err
}

func closedAfter(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}
