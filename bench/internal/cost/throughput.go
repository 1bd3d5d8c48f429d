package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/server"

	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/worker"
)

const (
	slots     = 32
	producers = 8 // enqueue at the same time
	// warmUp is the share of the tasks, one in so many, that are done before the clock starts.
	warmUp = 5
)

// throughput measures each contestant on the same machine as Redis, and with a network between.
func throughput(ctx context.Context, env *measure.Env) error {
	return env.Measure(ctx, contest(env, "stock", 0, 20_000), contest(env, "stock-far", 350*time.Microsecond, 6000))
}

func contest(env *measure.Env, name string, oneWay time.Duration, tasks int) measure.Contest {
	tasks = env.Share(tasks, 500)
	c := measure.Contest{
		Name: name, Title: fmt.Sprintf("%d tasks that do nothing, with keys of their own, on %d slots of a process", tasks, slots),
		Measure: func(ctx context.Context, t *results.Table) error {
			return env.Each(ctx, len(entrants), func(round, i int) error {
				env.Report("%s, round %d: %s", name, round+1, entrants[i].name)
				if err := run(ctx, env.Dir, oneWay, t, entrants[i], tasks); err != nil {
					return fmt.Errorf("%s: %w", entrants[i].name, err)
				}
				return nil
			})
		},
	}
	for _, one := range entrants {
		c.Rows = append(c.Rows, one.name)
	}
	return c
}

// run has one contestant do its tasks on a new server that far away.
func run(ctx context.Context, dir string, oneWay time.Duration, t *results.Table, c entrant, tasks int, others ...*server.Server,
) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s, err := server.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Kill()
	at := s.Addr()
	if oneWay > 0 {
		proxy, err := server.StartProxy(ctx, at, oneWay)
		if err != nil {
			return err
		}
		defer func() { _ = proxy.Close() }()
		at = proxy.Addr()
	}
	if err := enqueueEmpty(ctx, s.Addr(), tasks+slots, c.name == recorded); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: at, PoolSize: 2 * slots, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	return c.work(ctx, client, t, tasks, append([]*server.Server{s}, others...))
}

// work has the contestant do tasks that were enqueued, and adds what they have cost to its row: first a part of them to warm up.
func (c entrant) work(ctx context.Context, client redis.UniversalClient, t *results.Table, tasks int, servers []*server.Server) (err error) {
	crew, err := newCrew(func(work func()) (func() error, error) {
		return c.start(client, func(context.Context, *asynq.Task) error {
			work()
			return nil
		})
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crew.Close()) }()
	if err := crew.Pass(ctx, tasks/warmUp); err != nil {
		return err
	}
	cost, err := measure.Meter{Servers: servers}.Slice(ctx, crew, tasks-tasks/warmUp)
	if err != nil {
		return err
	}
	addThroughput(t, c.name, cost)
	return nil
}

// enqueueEmpty adds n tasks that do nothing, each with a key of its own.
func enqueueEmpty(ctx context.Context, addr string, n int, recorded bool) error {
	return workers.Enqueue(ctx, addr, producers, n, func(client *worker.Client, i int) error {
		order, opts := fmt.Sprint("order:", i), []asynq.Option(nil)
		if recorded {
			opts = append(opts, attach.Keys(order))
		}
		_, err := client.EnqueueRaw(ctx, emptyTask, fmt.Appendf(nil, "%q", order), nil, opts...)
		return err
	})
}

// addThroughput adds what a task has cost to a row.
func addThroughput(t *results.Table, row string, cost measure.Cost) {
	t.Add(row, "tasks/s", 1e6/cost[measure.Micros])
	t.Add(row, measure.ClientMicros, cost[measure.ClientMicros])
	t.Add(row, measure.ServerMicros, cost[measure.ServerMicros])
}
