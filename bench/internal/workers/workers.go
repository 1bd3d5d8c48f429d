// Package workers starts asynq servers for tasks that are measured: stock ones, stock ones with locks attached, and
// those of package worker. They log nothing, and end handlers that do not end within a second.
package workers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/worker"
)

// shutdownTimeout is what handlers get that do not end at once.
const shutdownTimeout = time.Second

// Stock starts a stock asynq server, and returns what ends it.
func Stock(client redis.UniversalClient, cfg asynq.Config, handler asynq.Handler) (stop func() error, err error) {
	cfg.ShutdownTimeout = shutdownTimeout
	cfg.LogLevel = asynq.FatalLevel // a conflict may be an error in asynq's eyes
	s := asynq.NewServerFromRedisClient(client, cfg)
	if err := s.Start(handler); err != nil {
		return nil, err
	}
	return func() error {
		s.Shutdown()
		return nil
	}, nil
}

// Attached starts a stock asynq server that has locks attached, with a handler made for them, and returns what ends it.
func Attached(
	client redis.UniversalClient, cfg asynq.Config, opts attach.Options, handler func(*attach.Attached) asynq.Handler,
) (stop func() error, err error) {
	opts.Logger = slog.New(slog.DiscardHandler)
	locks, err := attach.New(client, cfg, opts)
	if err != nil {
		return nil, err
	}
	stopServer, err := Stock(locks.Client(), locks.Config(), handler(locks))
	if err != nil {
		return nil, errors.Join(err, locks.Close())
	}
	return func() error {
		locks.Stop()
		return errors.Join(stopServer(), locks.Close())
	}, nil
}

// Railtoken starts a worker of package worker for tasks of some types, and returns what ends it.
func Railtoken[P any](
	ctx context.Context, cfg worker.Config, handler worker.Handler[P], types ...string,
) (stop func() error, err error) {
	cfg.ShutdownTimeout, cfg.Logger = shutdownTimeout, slog.New(slog.DiscardHandler)
	w, err := worker.New(cfg)
	if err != nil {
		return nil, err
	}
	for _, name := range types {
		err = errors.Join(err, worker.Handle(w, name, handler))
	}
	if err == nil {
		err = w.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.Shutdown())
	}
	return w.Shutdown, nil
}

// All starts n servers, and returns what ends them all at the same time. It ends those that have started when one does
// not.
func All(n int, start func(i int) (stop func() error, err error)) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		errs := make([]error, len(stops))
		var ending sync.WaitGroup
		for i, end := range stops {
			ending.Go(func() { errs[i] = end() })
		}
		ending.Wait()
		return errors.Join(errs...)
	}
	for i := range n {
		one, err := start(i)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// Enqueue has a client add n tasks to one Redis, in their order when there is one producer.
func Enqueue(ctx context.Context, addr string, producers, n int, add func(client *worker.Client, i int) error) error {
	return EnqueueTo(ctx, worker.Redis{Addr: addr}, producers, n, add)
}

// EnqueueTo does so wherever the tasks are.
func EnqueueTo(ctx context.Context, to worker.Redis, producers, n int, add func(client *worker.Client, i int) error) (err error) {
	client, err := worker.NewClient(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	failed := make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < n && failed[p] == nil && ctx.Err() == nil; i += producers {
				failed[p] = add(client, i)
			}
		})
	}
	all.Wait()
	return errors.Join(errors.Join(failed...), ctx.Err())
}
