package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/middleware"
)

func TestNobodyCollectsForALongHold(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("z")
		var narrow atomic.Int32
		handle := func(task *asynq.Task) {
			if task.Type() == "narrow" {
				time.Sleep(time.Second)
				narrow.Add(1)
			}
		}
		r.serveKeys(8, handle)
		r.serveKeys(8, handle)
		for range 10 {
			r.enqueueKeys("wide", "a", "z")
		}
		const minutes = 3
		for range 60 * minutes {
			r.enqueueKeys("narrow", "a")
		}
		time.Sleep(minutes * time.Minute)
		if n := narrow.Load(); n < 150 {
			r.Errorf("%d tasks of a second of the free key have run in %d minutes", n, minutes)
		} else {
			r.Logf("%d tasks have run", n)
		}
	})
}

func TestOneTaskCollectsAKeyAtATime(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		other, ok := (*line.Engine)(r.queue).Collecting(context.Background(), []string{"b", "c"}, time.Hour)
		if !ok {
			r.Fatal("another task collects these keys")
		}
		opts := r.options(middleware.Requeue{Delay: time.Second})
		opts.Key = func(context.Context, *asynq.Task) ([]string, error) { return []string{"a", "b"}, nil }
		ran := make(chan struct{}, 1)
		r.serve(opts, asynq.Config{Concurrency: 8}, func(context.Context, *asynq.Task) error {
			ran <- struct{}{}
			return nil
		})
		held := r.hold("b")
		r.enqueueKeys("wide", "a", "b")
		r.events.await(r, 2, parked)
		if n := r.client.Exists(context.Background(), "railtoken:lock:{a}").Val(); n > 0 {
			r.Error("the task collects, although another one collects one of its keys")
		}
		other(context.Background())
		r.giveBack(held)
		receive(r.T, ran)
	})
}

func TestCollectingIsNoLockAndLeavesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		opts := r.options(middleware.Requeue{Delay: time.Second})
		opts.Key = func(context.Context, *asynq.Task) ([]string, error) { return []string{"a", "b"}, nil }
		ran := make(chan struct{}, 1)
		r.serve(opts, asynq.Config{Concurrency: 8}, func(context.Context, *asynq.Task) error {
			ran <- struct{}{}
			return nil
		})
		held := r.hold("b")
		r.enqueueKeys("wide", "a", "b")
		for range 100 {
			if r.client.Exists(context.Background(), "railtoken:lock:{a}").Val() > 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if marks := r.client.Keys(context.Background(), "*collect*").Val(); len(marks) != 2 {
			r.Errorf("a task that collects two keys has the marks %q", marks)
		}
		if locks := r.client.Keys(context.Background(), "railtoken:lock:*collect*").Val(); len(locks) > 0 {
			r.Errorf("a task that collects has the locks %q", locks)
		}
		r.giveBack(held)
		receive(r.T, ran)
		time.Sleep(time.Second)
		if left := r.client.Keys(context.Background(), "*collect*").Val(); len(left) > 0 {
			r.Errorf("it has left %q", left)
		}
	})
}
