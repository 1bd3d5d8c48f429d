package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestAWorkerFetchesAgainWithinASecondOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan time.Time, 1)
		w, m := virtual(t, Config{})
		handle(t, w, "audit", func(context.Context, order) error {
			ran <- time.Now()
			return nil
		})
		start(t, w)
		time.Sleep(time.Second)
		m.SetError("OOM command not allowed")
		time.Sleep(time.Minute)
		m.SetError("")
		back := time.Now()
		asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		if took := (<-ran).Sub(back); took > time.Second+2*DefaultTaskCheckInterval {
			t.Errorf("the first task after an outage started after %v", took)
		}
	})
}

func TestAnOutageHoldsUpNoShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const tasks = 30
		var down atomic.Bool
		w, m := virtual(t, Config{Concurrency: tasks}, redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if down.Load() {
				return redistest.Fail(cmd, errors.New("connection refused"))
			}
			return next(ctx, cmd)
		}))
		var running sync.WaitGroup
		running.Add(tasks)
		finish := make(chan struct{})
		if err := Handle(w, "audit", Handler[order]{Unlocked: true, Run: func(context.Context, order) error {
			running.Done()
			<-finish
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		start(t, w)
		for range tasks {
			asynqtest.Enqueue(t, m, orderTask(t, "audit", "42"))
		}
		running.Wait()
		down.Store(true)
		close(finish)
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a shutdown with %d acknowledgements that cannot be sent took %v", tasks, took)
		}
	})
}
