package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// A task that was woken for one of its keys and cannot have the other passes its wake on: at once, or after 3 s when it has
// collected its keys until then.
func TestAWaiterThatGivesUpWakesTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("b")
		u := newUsage()
		r.process(6, never, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
			var p payload
			_ = json.Unmarshal(task.Payload(), &p)
			u.work(ctx, task, time.Duration(p.N)*time.Millisecond)
			return nil
		})
		r.enqueue(payload{Key: "a", N: 100}, asynq.MaxRetry(3))
		<-time.After(50 * time.Millisecond)
		r.enqueue(payload{Key: "a,b"}, asynq.MaxRetry(3)) // waits for a, and cannot have b then
		r.events.await(r, 1, parked)
		for range 3 {
			r.enqueue(payload{Key: "a", N: 5}, asynq.MaxRetry(3))
		}
		r.until(5*time.Second, "the others", func() bool { return u.finished() == 4 })
	})
}

// A task that was woken in vain does not release the key: it stays among the waiters with its count of conflicts, or its
// limits would never be reached.
func TestATaskWokenInVainStaysAmongTheWaiters(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("a")
		ran := make(chan struct{})
		r.process(6, never, asynq.Config{}, func(context.Context, *asynq.Task) error {
			close(ran)
			return nil
		})
		task := r.enqueue(payload{Key: "a"}, asynq.MaxRetry(3))
		for n := 1; n <= 4; n++ {
			r.events.await(r, n, parked)
			conflict, _ := r.events.await(r, n, ended(middleware.Park))[n-1].Err.(*middleware.ConflictError) //nolint:errorlint // an event carries the error itself
			if conflict.Task != task || conflict.Conflicts != n || conflict.Waited < time.Duration(n-1)*time.Second {
				r.Errorf("conflict %d is number %d of %v after %v", n, conflict.Conflicts, conflict.Task, conflict.Waited)
			}
			<-time.After(time.Second)
			if n < 4 { // as after a release of a key that is taken again at once
				if _, err := r.queue.Wake(r.Context(), "a", delayqueue.WakeOptions{}); err != nil {
					r.Fatal(err)
				}
			}
		}
		r.giveBack(lease)
		receive(r.T, ran)
	})
}

func TestAShutdownParksWaitersAndAnotherServerGoesOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const tasks = 60
		u := newUsage()
		handler := func(ctx context.Context, task *asynq.Task) error {
			u.work(ctx, task, 5*time.Millisecond)
			return nil
		}
		for range tasks {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
		}
		waits := middleware.Wait{Max: time.Minute}.Then(never)
		first := r.process(8, waits, asynq.Config{}, handler)
		r.until(time.Minute, "tasks wait", func() bool { return u.finished() > 10 && first.budget.InUse() > 0 })
		first.signal()
		r.until(20*time.Millisecond, "no task waits in a slot", func() bool { return first.budget.InUse() == 0 })
		first.server.Shutdown()
		before := u.finished()
		r.process(8, waits, asynq.Config{}, handler)
		r.until(10*time.Second, fmt.Sprintf("the %d tasks that are left", tasks-before), func() bool { return u.finished() == tasks })
		u.wantApart(r)
	})
}

// A lease is lost, a handler releases early, another one panics, and the next task runs.
func TestTheNextTaskRunsWhateverAHolderDoes(t *testing.T) {
	t.Parallel()
	for name, misdeed := range map[string]func(r *rig, ctx context.Context){
		"panics":             func(*rig, context.Context) { panic("a handler of the test") },
		"ends its goroutine": func(*rig, context.Context) { runtime.Goexit() },
		"releases early": func(_ *rig, ctx context.Context) {
			l, _ := locking.FromContext(ctx)
			_ = l.Release(ctx)
			<-time.After(3 * time.Millisecond)
		},
		"loses its lease":  func(r *rig, ctx context.Context) { r.client.Del(ctx, "railtoken:lock:{hot}"); <-ctx.Done() },
		"is past its time": func(_ *rig, ctx context.Context) { <-ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				const tasks = 30
				u := newUsage()
				first := r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(1), asynq.Timeout(2*time.Second))
				for range tasks {
					r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
				}
				var bad atomic.Bool
				r.process(8, never, asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
					func(ctx context.Context, task *asynq.Task) error {
						id, _ := asynq.GetTaskID(ctx)
						if id == first.ID && bad.CompareAndSwap(false, true) {
							misdeed(r, ctx)
							return ctx.Err()
						}
						u.work(ctx, task, 5*time.Millisecond)
						return nil
					})
				r.until(40*time.Second, "the others", func() bool { return u.finished() >= tasks })
				u.wantApart(r)
			})
		})
	}
}
