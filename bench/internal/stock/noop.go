// Package stock measures how many empty tasks a process completes: what asynq, the locks and the calls to Redis
// cost, and nothing else.
package stock

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/distance"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/usage"
)

const (
	slots = 32
	// warmUp is the share of the tasks, one in so many, that are done before the clock starts.
	warmUp = 5
	bound  = 2 * time.Minute
)

// way is how far away Redis is.
type way struct {
	name   string
	oneWay time.Duration
	tasks  int
}

// Measure measures each contestant on the same machine as Redis, and with a network between.
func Measure(ctx context.Context, env *measure.Env) error {
	for _, w := range []way{{"stock", 0, 20_000}, {"stock-far", 350 * time.Microsecond, 6000}} {
		if !env.Wants(w.name) {
			continue
		}
		if err := w.measure(ctx, env); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (w way) measure(ctx context.Context, env *measure.Env) error {
	tasks := env.Share(w.tasks, 500)
	t := env.Table(w.name, fmt.Sprintf("%d tasks that do nothing, with keys of their own, on %d slots of a process", tasks, slots))
	for _, c := range contestants {
		t.AddRow(c.name) // in this order
	}
	for round := range env.Rounds {
		for _, i := range measure.Turns(len(contestants), round) {
			c := contestants[i]
			env.Report("%s, round %d: %s", w.name, round+1, c.name)
			if err := w.run(ctx, env, t, c, tasks); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// run has one contestant do its tasks on a new server.
func (w way) run(ctx context.Context, env *measure.Env, t *results.Table, c contestant, tasks int) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s, err := server.Start(ctx, env.Dir)
	if err != nil {
		return err
	}
	defer s.Kill()
	at := s.Addr()
	if w.oneWay > 0 {
		proxy, err := distance.Listen(ctx, at, w.oneWay)
		if err != nil {
			return err
		}
		defer func() { _ = proxy.Close() }()
		at = proxy.Addr()
	}
	if err := enqueue(ctx, s.Addr(), tasks, c.name == recorded); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: at, PoolSize: 2 * slots, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	roundTrip, err := pingTime(ctx, client)
	if err != nil {
		return err
	}
	runtime.GC() // the garbage of the enqueueing
	count := newCounter(tasks/warmUp, tasks)
	stop, err := c.start(client, count.handle)
	if err != nil {
		return err
	}
	defer stop()
	meter := usage.Meter{Servers: []*server.Server{s}}
	if err := count.await(ctx, count.warm); err != nil {
		return err
	}
	before, err := meter.Read(ctx)
	from := count.done.Load()
	if err != nil {
		return err
	}
	if err := count.await(ctx, count.all); err != nil {
		return err
	}
	after, err := meter.Read(ctx)
	if err != nil {
		return err
	}
	cost := after.Since(before, tasks-int(from))
	t.Add(c.name, "tasks/s", 1e6/cost.Micros)
	t.Add(c.name, "client µs", cost.Client)
	t.Add(c.name, "server µs", cost.Server)
	t.Add(c.name, "round trip µs", float64(roundTrip.Nanoseconds())/1e3)
	return nil
}

// pingTime returns the median round trip to Redis.
func pingTime(ctx context.Context, client *redis.Client) (time.Duration, error) {
	var all results.Values
	for range 50 {
		began := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(began)))
	}
	return time.Duration(all.Median()), nil
}
