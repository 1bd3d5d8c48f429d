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

// settle is how long a contestant works on servers that have come back, before the next ones go.
const settle = 200 * time.Millisecond

// outages measures one caller on five servers of which one does not serve, against as many healthy ones, in the same
// rounds. Another one is paused in each round; or else the first one is killed for good.
func outages(kill bool) func(context.Context, *bench, *results.Table, []*site) error {
	return func(ctx context.Context, b *bench, t *results.Table, sites []*site) error {
		kinds := b.lab.installed(t, contestant.FiveNodes)
		well, endWell, err := openAll(kinds, sites[0], 1)
		if err != nil {
			return err
		}
		defer endWell()
		ill, endIll, err := openAll(kinds, sites[1], 1)
		if err != nil {
			return err
		}
		defer endIll()
		o := outage{bench: b, table: t, site: sites[1], well: well, ill: ill, hangs: make([]<-chan struct{}, len(ill))}
		for i := range ill {
			t.AddRow(ill[i].Name) // in this order
			o.settle(ctx, i)
		}
		if kill {
			if err := o.site.kill(ctx); err != nil {
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

// outage is the contestants on healthy servers and on those of which one is broken.
type outage struct {
	*bench

	table     *results.Table
	site      *site
	well, ill []*opened
	hangs     []<-chan struct{} // closed when what hung in the last round has ended
}

func (o *outage) round(ctx context.Context, round int, pause bool) (err error) {
	if pause {
		for i := range o.ill {
			<-o.hangs[i]
			o.settle(ctx, i)
			<-o.hangs[i]
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

// settle lets a contestant work that is not measured.
func (o *outage) settle(ctx context.Context, i int) { o.onIll(ctx, i, settle) }

// onIll lets a contestant work on the broken servers.
func (o *outage) onIll(ctx context.Context, i int, long time.Duration) measure.Sample {
	sample, left := o.ill[i].pairs(ctx, measure.After(0, long))
	hangs := make(chan struct{})
	o.hangs[i] = hangs
	go func() {
		defer close(hangs)
		left()
	}()
	return sample
}

func (o *outage) turn(ctx context.Context, i int) {
	name, long := o.ill[i].Name, o.span(outageSlice)
	sample, left := o.well[i].pairs(ctx, measure.After(long/5, long))
	left()
	addSample(o.table, name, sample, long, "healthy ")
	select {
	case <-o.hangs[i]:
		sample = o.onIll(ctx, i, long)
	default: // its caller hangs on the killed server ever since the last round
		sample = measure.Sample{Hung: []time.Duration{long}}
	}
	addSample(o.table, name, sample, long, "outage ")
	if sorted := sample.Sorted(); len(sample.Hung) > 0 && sorted[len(sorted)-1] >= long/2 {
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
	if err != nil {
		return err
	}
	s.redis[0].Kill()
	if s.etcd != nil {
		s.etcd.Kill(follower)
	}
	return nil
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
