package recovery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/internal/testing/process"
)

const (
	work    = 5 * time.Millisecond
	backlog = 10_000
	steady  = time.Second // before the fault
	// cutFor is how long the network is gone.
	cutFor = time.Second
	// outageBound is the longest that a recovery is watched.
	outageBound = 30 * time.Second
)

// outage is a fault of the service that the workers use.
type outage struct {
	name string
	open func(ctx context.Context, dir string) (*site, error)
}

var all = []outage{{"Redis restarted", restarts}, {"network cut", cuts}, {"failover", failsOver}}

// site is a service that is about to fail.
type site struct {
	// addr is for producers.
	addr   string
	client func() *redis.Client
	// settle returns when what was enqueued is safe from the fault; nil when it always is.
	settle func(ctx context.Context) error
	// strike lets the service fail, and returns when it is there again.
	strike func(ctx context.Context) error
	end    func()
}

// outages measures when the contestants work at this share of their rates again.
func outages(ctx context.Context, env *measure.Env, faults []outage, of []contestant, share float64) error {
	return env.Measure(ctx, measure.Contest{
		Group: Group, Name: "recovery", Rows: names(of), Title: fmt.Sprintf(
			"seconds from an outage of Redis to the first task and to %.0f %% of the rate before, on %d slots with tasks x %v; "+
				"Redis is killed and started on its append-only file, its network is gone for %v, or its master is killed and two of three "+
				"sentinels that wait for %v replace it", 100*share, slots, work, cutFor, server.DownAfter),
		Measure: func(ctx context.Context, t *results.Table) error {
			return env.Each(ctx, len(faults)*len(of), func(round, i int) error {
				fault, c := faults[i/len(of)], of[i%len(of)]
				env.Report("recovery, round %d: %s, %s", round+1, fault.name, c.name)
				if err := fault.measure(ctx, env, t, c, share); err != nil {
					return fmt.Errorf("%s, %s: %w", fault.name, c.name, err)
				}
				return nil
			})
		},
	})
}

// measure lets a contestant work, and the service fail once.
func (f outage) measure(ctx context.Context, env *measure.Env, t *results.Table, c contestant, share float64) (err error) {
	s, err := f.open(ctx, env.Dir)
	if err != nil {
		return err
	}
	defer s.end()
	if err := c.enqueue(ctx, s.addr, env.Share(backlog, 1500)); err != nil {
		return err
	}
	if s.settle != nil {
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	client := s.client()
	defer func() { _ = client.Close() }()
	starts, before := &timeline{}, env.Span(steady, 300*time.Millisecond)
	stop, err := c.start(client, func(ctx context.Context, _ *asynq.Task) error {
		starts.note()
		select {
		case <-time.After(work):
		case <-ctx.Done():
		}
		return nil // a task whose server has lost it is done all the same
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := within(ctx, func() error { return ranFor(starts.seen(), before) }); err != nil {
		return err
	}
	fault := time.Now()
	if err := s.strike(ctx); err != nil {
		return err
	}
	back := time.Now()
	var got comeback
	unfinished := within(ctx, func() error {
		var ok bool
		if got, ok = judge(starts.seen(), share, before, fault, back); !ok {
			return errors.New("the rate is not normal")
		}
		return nil
	})
	if ctx.Err() != nil {
		return unfinished
	}
	f.addTo(t, c.name, fault, back, got)
	return nil
}

// ranFor returns nil when tasks have run for some time.
func ranFor(starts []time.Time, d time.Duration) error {
	if len(starts) == 0 || time.Since(starts[0]) < d {
		return fmt.Errorf("%d tasks have started", len(starts))
	}
	return nil
}

// addTo adds the times since the fault.
func (f outage) addTo(t *results.Table, row string, fault, back time.Time, got comeback) {
	t.Add(row, f.name+": down s", back.Sub(fault).Seconds())
	first, usual := got.first.Sub(fault).Seconds(), got.normal.Sub(fault).Seconds()
	if got.normal.IsZero() {
		first, usual = math.NaN(), math.NaN() // the rounds must stay side by side
		t.AddRow(row).Note = fmt.Sprintf("%s: in some rounds the rate was not normal after %v", f.name, outageBound)
	}
	t.Add(row, f.name+": first s", first)
	t.Add(row, f.name+": normal s", usual)
}

// within looks until there is no error, for a bounded time.
func within(ctx context.Context, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, outageBound)
	defer cancel()
	return process.Poll(ctx, nil, look)
}

// clientOf returns a client of one server.
func clientOf(addr string) func() *redis.Client {
	return func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 4 * slots, ContextTimeoutEnabled: true})
	}
}

func restarts(ctx context.Context, dir string) (*site, error) {
	s, err := server.StartDurable(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &site{addr: s.Addr(), client: clientOf(s.Addr()), strike: s.Restart, end: s.Kill}, nil
}

func cuts(ctx context.Context, dir string) (*site, error) {
	s, err := server.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	proxy, err := server.StartProxy(ctx, s.Addr(), 0)
	if err != nil {
		s.Kill()
		return nil, err
	}
	return &site{
		addr: s.Addr(), client: clientOf(proxy.Addr()),
		strike: func(ctx context.Context) error {
			proxy.Cut()
			defer proxy.Mend()
			select {
			case <-time.After(cutFor):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		end: func() {
			_ = proxy.Close()
			s.Kill()
		},
	}, nil
}

func failsOver(ctx context.Context, dir string) (*site, error) {
	s, err := server.StartSentinel(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &site{
		addr: s.Master.Addr(), strike: s.FailOver, end: s.Kill,
		client: func() *redis.Client {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: server.MasterName, SentinelAddrs: s.Addrs(), PoolSize: 4 * slots, ContextTimeoutEnabled: true,
			})
		},
		settle: func(ctx context.Context) error { // the replica has it, too
			return s.Master.Probe().Wait(ctx, 1, outageBound).Err()
		},
	}, nil
}
