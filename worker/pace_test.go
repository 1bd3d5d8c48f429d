package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/asynqtest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// counted counts the looks that reach Redis.
type counted struct{ looks atomic.Int64 }

func (c *counted) hook() redistest.Hook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if isLook(cmd) {
			c.looks.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestAnIdleWorkerLooksNoMoreOftenThanItsInterval(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("%d queues", queues), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c counted
				cfg := Config{TaskCheckInterval: 50 * time.Millisecond, Concurrency: 6, Queues: map[string]int{}}
				for i := range queues {
					cfg.Queues[fmt.Sprint("q", i)] = i + 1
				}
				w, _ := virtual(t, cfg, c.hook())
				handle(t, w, "work", nothing)
				start(t, w)
				time.Sleep(time.Second)
				const seconds = 20
				before := c.looks.Load()
				time.Sleep(seconds * time.Second)
				each := float64(c.looks.Load()-before) / seconds // one command looks at all queues
				t.Logf("%.1f looks a second", each)
				if each > 20/0.72 || each < 20/0.98 {
					t.Errorf("the server looks %.1f times a second, want once in 0.72 to 0.98 of 50ms: about 25 times", each)
				}
			})
		})
	}
}

func TestATaskThatIsWokenStartsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, m := virtual(t, Config{
			TaskCheckInterval: 10 * time.Second, DelayedTaskCheckInterval: time.Hour, Concurrency: 6,
			Strategy: middleware.Requeue{Delay: time.Hour}, Queues: map[string]int{"default": 2, "other": 1},
		})
		started, ended := make(chan time.Time, 1), make(chan time.Time, 1)
		release := make(chan struct{})
		handle(t, w, "work", func(context.Context, order) error {
			started <- time.Now()
			<-release
			ended <- time.Now()
			return nil
		})
		start(t, w)
		const tasks = 30
		for range tasks {
			asynqtest.Enqueue(t, m, orderTask(t, "work", "1"))
		}
		<-started
		time.Sleep(time.Minute) // the others have parked
		var worst, all time.Duration
		for range tasks - 1 {
			release <- struct{}{}
			at := <-ended
			took := (<-started).Sub(at)
			worst, all = max(worst, took), all+took
			time.Sleep(11 * time.Second) // the server has come to rest
		}
		release <- struct{}{}
		<-ended
		t.Logf("a woken task started after %v on average, %v at most", all/(tasks-1), worst)
		if worst > 10*time.Millisecond {
			t.Errorf("a task that was woken started after %v, want a few milliseconds", worst)
		}
	})
}

func TestAWorkerThatPausesShutsDownAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := virtual(t, Config{TaskCheckInterval: time.Hour, DelayedTaskCheckInterval: time.Second, Concurrency: 3})
		handle(t, w, "work", nothing)
		start(t, w)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the shutdown took %v while its fetch paused", took)
		}
	})
}

func TestErrorsDoNotMakeAWorkerSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fetches atomic.Int64
		w, _ := virtual(t, Config{TaskCheckInterval: 50 * time.Millisecond}, redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if !isFetch(cmd) {
				return next(ctx, cmd)
			}
			fetches.Add(1)
			return redistest.Fail(cmd, errors.New("READONLY you may not write to a replica"))
		}))
		handle(t, w, "work", nothing)
		start(t, w)
		time.Sleep(20 * time.Second)
		if got := fetches.Load(); got > 60 {
			t.Errorf("%d fetches in 20s of errors", got)
		}
	})
}
