package middleware_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
)

// Half of the tasks are for one key, the others have keys of their own. A task on standby must not hold up the others.
func TestAStandbyTakesNoSlotFromOthers(t *testing.T) {
	t.Parallel()
	for _, servers := range []struct{ n, slots int }{{4, 1}, {1, 3}, {1, 4}, {1, 8}} {
		t.Run(fmt.Sprintf("%d servers of %d slots", servers.n, servers.slots), func(t *testing.T) {
			t.Parallel()
			standby := othersDone(t, servers.n, servers.slots, middleware.Requeue{Delay: time.Hour})
			none := othersDone(t, servers.n, servers.slots, middleware.Requeue{Delay: time.Hour, Standby: -1})
			t.Logf("the others took %v, %v without standby", standby, none)
			if standby > none*21/20 {
				t.Errorf("the others took %v, want at most 1.05 x the %v without standby", standby, none)
			}
		})
	}
}

// othersDone returns how long tasks with keys of their own take beside tasks of one key, in virtual time.
func othersDone(t *testing.T, servers, slots int, s middleware.Strategy) (took time.Duration) {
	t.Helper()
	bubble(t, func(r *rig) {
		const others = ownTasks
		for i := range others {
			r.enqueue(payload{Key: "hot"}, asynq.MaxRetry(3))
			r.enqueue(payload{Key: fmt.Sprint("own:", i)}, asynq.MaxRetry(3))
		}
		u, own := newUsage(), newUsage()
		began := time.Now()
		for range servers {
			r.process(slots, s, asynq.Config{}, func(ctx context.Context, task *asynq.Task) error {
				if keys, _ := keyList(ctx, task); keys[0] == "hot" {
					u.work(ctx, task, 100*time.Millisecond)
				} else {
					own.work(ctx, task, 20*time.Millisecond)
				}
				return nil
			})
		}
		r.until(10*time.Minute, "the others", func() bool { return own.finished() == others })
		took = time.Since(began)
	})
	return took
}

// A task has 3 s, of which its handler takes 2.9 s. asynq counts from the fetch, so what the task waits in its slot is
// missing to the handler.
func TestAStandbyLeavesTheHandlerItsTimeout(t *testing.T) {
	t.Parallel()
	for _, held := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second} {
		t.Run(held.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				lease := r.hold("order:1")
				r.process(4, middleware.Requeue{Delay: time.Hour}, asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
					select {
					case <-time.After(2900 * time.Millisecond):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(1), asynq.Timeout(3*time.Second), asynq.Retention(time.Hour))
				r.events.await(r, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
				<-time.After(held)
				r.giveBack(lease)
				if info := r.settled(task, asynq.TaskStateCompleted); info.Retried != 0 {
					r.Errorf("the task has failed %d times: %s", info.Retried, info.LastErr)
				}
			})
		})
	}
}
