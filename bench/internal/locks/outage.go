package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
)

// settle is how long a contestant works on servers that have come back, before the next ones go.
const settle = 200 * time.Millisecond

// outages measures one caller on five servers of which one does not serve, against as many healthy ones, in the same
// rounds. Another one is paused in each round; or else the first one is killed for good.
func outages(kill bool) func(context.Context, *bench, *results.Table, []*site) error {
	return func(ctx context.Context, b *bench, t *results.Table, sites []*site) error {
		kinds := b.installed(t, FiveNodes)
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
			o.onIll(ctx, i, settle)
		}
		if kill {
			if _, err := o.site.hit(ctx, 0, true); err != nil {
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
			o.onIll(ctx, i, settle)
			<-o.hangs[i]
		}
		var resume func() error
		if resume, err = o.site.hit(ctx, round, false); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, resume()) }()
	}
	for _, i := range measure.Turns(len(o.ill), round) {
		o.turn(ctx, i)
	}
	return ctx.Err()
}

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
		o.table.Row(name).Note = fmt.Sprintf("in some slices of %v a pair hung until the end, so it took at least that long", long)
	}
}

// hit stops or kills a server and a follower of etcd, others in each round, and returns what resumes those that were
// stopped. An election would take longer than a slice.
func (s *site) hit(ctx context.Context, round int, kill bool) (resume func() error, err error) {
	victim := s.redis[round%len(s.redis)]
	follower := 0
	if s.etcd != nil {
		leader, err := s.etcd.Leader(ctx)
		if err != nil {
			return nil, err
		}
		n := len(s.etcd.Addrs())
		follower = (leader + 1 + round%(n-1)) % n
	}
	switch {
	case kill && s.etcd != nil:
		s.etcd.Kill(follower)
		fallthrough
	case kill:
		victim.Kill()
		return nil, nil
	case s.etcd == nil:
		return victim.Resume, victim.Pause()
	}
	resume = func() error { return errors.Join(s.etcd.Resume(follower), victim.Resume()) }
	return resume, errors.Join(victim.Pause(), s.etcd.Pause(follower))
}
