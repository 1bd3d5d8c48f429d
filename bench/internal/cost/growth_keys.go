package cost

import (
	"context"

	"github.com/railtoken/railtoken/bench/internal/measure"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/metrics/prometheus"
	"github.com/railtoken/railtoken/worker"
)

// keySlots is less than half of the fewest keys, so that no task meets another one of its key.
const keySlots = 4

// overKeys is what tasks cost whose keys are so many, all of which have been locked before.
func overKeys(sizes []int, tasks int) series {
	return series{
		"growth-keys", "a task that does nothing, over the number of keys", names(sizes), parts, tasks,
		func(ctx context.Context, at *server.Server, i int) (measure.Load, error) {
			keys := lockKeys(sizes[i])
			err := lockEach(ctx, at.Addr(), keys, locking.SingleOptions{}, locking.Options{}, nil)
			if err != nil {
				return nil, err
			}
			return startCrew(ctx, at, worker.Config{}, keys, (1+parts)*tasks)
		},
	}
}

// telemetry is what tasks cost without reports and metrics, with the reports alone, and with both. A report comes every
// 5 s.
func telemetry(tasks int) series {
	return series{
		"cost-telemetry", "a task that does nothing, with reports and metrics",
		[]string{"neither", "reports", "reports and Prometheus"},
		telemetryParts, tasks,
		func(ctx context.Context, at *server.Server, i int) (measure.Load, error) {
			cfg := worker.Config{DisableReports: i == 0}
			if i == 2 {
				cfg.Observer = prometheus.New(prometheus.Options{}).Observe
			}
			return startCrew(ctx, at, cfg, lockKeys(1000), (1+telemetryParts)*tasks)
		},
	}
}

// startCrew enqueues n tasks and some that fill the slots at the end, whose keys follow one another or, when there are
// more, are taken from all over. It starts a worker with the rest of a configuration.
func startCrew(ctx context.Context, at *server.Server, cfg worker.Config, keys []string, n int) (measure.Load, error) {
	err := workers.Enqueue(ctx, at.Addr(), 1, n+keySlots, func(client *worker.Client, i int) error {
		_, err := client.Enqueue(ctx, emptyTask, keys[i*max(1, len(keys)/n)%len(keys)])
		return err
	})
	if err != nil {
		return nil, err
	}
	crew, err := newCrew(func(work func()) (func() error, error) {
		cfg.Redis, cfg.Concurrency = worker.Redis{Addr: at.Addr()}, keySlots
		return workers.Railtoken(ctx, cfg, worker.Handler[string]{
			Keys: func(key string) []string { return []string{key} },
			Run: func(context.Context, string) error {
				work()
				return nil
			},
		}, emptyTask)
	})
	if err != nil {
		return nil, err
	}
	return crew, nil
}
