package growth

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/bench/internal/noop"
	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/worker"
)

// startCrew enqueues tasks for so many slices and one to warm up, whose keys follow one another, and starts a worker with
// the rest of a configuration.
func startCrew(ctx context.Context, at *server.Server, cfg worker.Config, keys []string, slices, tasks int) (bench, error) {
	err := noop.Enqueue(ctx, at.Addr(), 1, (1+slices)*tasks+keySlots, func(i int) ([]byte, []asynq.Option) {
		return fmt.Appendf(nil, "%q", keys[i%len(keys)]), nil
	})
	if err != nil {
		return nil, err
	}
	crew, err := noop.Start(at, tasks, func(work func()) (func() error, error) {
		cfg.Redis, cfg.Concurrency = worker.Redis{Addr: at.Addr()}, keySlots
		return workers.Railtoken(ctx, cfg, worker.Handler[string]{
			Keys: func(key string) []string { return []string{key} },
			Run: func(context.Context, string) error {
				work()
				return nil
			},
		}, noop.Type)
	})
	if err != nil {
		return nil, err
	}
	if err := crew.Learn(ctx); err != nil {
		return nil, errors.Join(err, crew.Close())
	}
	return crew, nil
}
