package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// asynq fetches from each queue in turn, and stops between two rounds. One fetch is for all queues: so a round is one fetch and one pause.
func TestAShutdownWaitsForOnePauseAtMost(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{1, 60} {
		for _, stopped := range []bool{false, true} {
			t.Run(fmt.Sprint(queues, " queues, stopped before ", stopped), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const interval = 50 * time.Millisecond
					m, client := newVirtual(t)
					var looks atomic.Int32
					client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
						if cmd.Name() == "exists" {
							looks.Add(1)
						}
						return next(ctx, cmd)
					}))
					stopping, ran := make(chan struct{}), make(chan time.Time, 1)
					conn := New(client, Options{
						Queues: numbered(queues), Slots: 2, Interval: interval, Stopping: stopping, Tasks: &witness{answers: never},
					})
					s := bareServer(t, conn, func(context.Context, *asynq.Task) error {
						ran <- time.Now()
						return nil
					}, func(cfg *asynq.Config) {
						cfg.Queues, cfg.TaskCheckInterval, cfg.Concurrency = numbered(queues), CheckInterval, 2
					})
					time.Sleep(time.Second)
					for _, queue := range []string{"default", fmt.Sprint(queues - 1)}[:min(queues, 2)] {
						at := time.Now()
						asynqtest.Enqueue(t, m, asynq.NewTask("test", nil), asynq.Queue(queue))
						if took := (<-ran).Sub(at); took > 2*interval {
							t.Errorf("a task in %s begins after %v", queue, took)
						}
					}
					time.Sleep(time.Second)
					looks.Store(0)
					time.Sleep(10 * time.Second)
					if n := looks.Load(); n < 200 || n > 320 {
						t.Errorf("an idle server looks %d times in 10 s", n)
					}
					if stopped {
						close(stopping)
					}
					began := time.Now()
					s.Shutdown()
					if took := time.Since(began); took > interval {
						t.Errorf("the shutdown takes %v", took)
					}
				})
			})
		}
	}
}

func TestTheRestOfARoundIsAnsweredWithNothing(t *testing.T) {
	t.Parallel()
	r := round{queues: 3}
	for i, call := range []struct {
		rests bool // it needs no fetch
		err   error
		all   bool // its fetch was for all queues
	}{
		{err: redis.Nil, all: true},
		{rests: true},
		{rests: true},
		{err: redis.Nil},
		{err: redis.Nil, all: true},
		{rests: true},
		{err: redis.Nil},
		{err: redis.Nil},
		{err: redis.Nil, all: true},
		{err: redis.ErrNoScript},
		{err: redis.Nil, all: true},
		{rests: true},
		{rests: true},
		{err: redis.Nil},
		{err: nil},
		{err: redis.Nil, all: true},
		{rests: true},
		{rests: true},
		{err: redis.Nil},
		{err: redis.Nil},
		{err: errors.New(oom)},
		{err: redis.Nil, all: true},
		{rests: true},
		{rests: true},
		{err: redis.Nil, all: true},
	} {
		rests := r.rests()
		if rests != call.rests {
			t.Errorf("call %d needs no fetch: %v", i, rests)
		}
		if !rests {
			r.answered(call.err, call.all)
		}
	}
}
