package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/bench/internal/server"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	taskType  = "cost"
	taskKey   = "order-000001"
	taskSlots = 16
	taskDelay = time.Hour // of parked tasks' timers
	retrySet  = "asynq:{default}:retry"
)

// payload is that of all tasks.
type payload struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func task(n int) payload { return payload{n, "audit"} }

// waiting lets tasks wait in one way, and adds their memory.
func waiting(row string, wait func(ctx context.Context, at *server.Server, n int) error) func(context.Context, *store) error {
	return func(ctx context.Context, s *store) error {
		if err := wait(ctx, s.at, s.n); err != nil {
			return fmt.Errorf("%s: %w", row, err)
		}
		return s.add(ctx, row)
	}
}

// allIn returns when n tasks are in asynq's retry set.
func allIn(ctx context.Context, at *server.Server, n int) error {
	return until(ctx, settleBound, "all tasks wait", func() (bool, error) {
		in, err := at.Probe().ZCard(ctx, retrySet).Result()
		return in >= int64(n), err
	})
}

// bare lets asynq retry tasks.
func bare(ctx context.Context, at *server.Server, n int) (err error) {
	if err := enqueue(ctx, at, middleware.BestEffort, n); err != nil {
		return err
	}
	conn := redis.NewClient(&redis.Options{Addr: at.Addr()})
	defer func() { err = errors.Join(err, conn.Close()) }()
	s := asynq.NewServerFromRedisClient(conn, asynq.Config{
		Concurrency: taskSlots, TaskCheckInterval: 10 * time.Millisecond, LogLevel: asynq.FatalLevel,
		IsFailure:      func(error) bool { return false },
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return taskDelay },
	})
	refused := errors.New("try again")
	if err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return refused })); err != nil {
		return err
	}
	defer s.Shutdown()
	return allIn(ctx, at, n)
}

// parked lets a worker park tasks behind one that holds their key.
func parked(order middleware.Order) func(ctx context.Context, at *server.Server, n int) error {
	return func(ctx context.Context, at *server.Server, n int) (err error) {
		if err := enqueue(ctx, at, order, n+1); err != nil {
			return err
		}
		w, err := worker.New(worker.Config{
			Redis: worker.Redis{Addr: at.Addr()}, Concurrency: taskSlots, ShutdownTimeout: 100 * time.Millisecond,
			Strategy: middleware.Requeue{Order: order, Standby: -1, Delay: taskDelay},
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Shutdown()) }()
		over := make(chan struct{})
		defer close(over)
		err = worker.Handle(w, taskType, worker.Handler[payload]{
			Keys: func(payload) []string { return []string{taskKey} },
			Run: func(context.Context, payload) error {
				<-over
				return nil
			},
		})
		if err == nil {
			err = w.Start(ctx)
		}
		if err != nil {
			return err
		}
		return allIn(ctx, at, n)
	}
}

func enqueue(ctx context.Context, at *server.Server, order middleware.Order, n int) (err error) {
	client, err := worker.NewClient(worker.Redis{Addr: at.Addr()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for i := range n {
		if order == middleware.BestEffort {
			_, err = client.Enqueue(ctx, taskType, task(i))
		} else {
			_, err = client.EnqueueInOrder(ctx, taskKey, taskType, task(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
