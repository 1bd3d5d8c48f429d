package middleware_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// bubble runs a test in virtual time, with a rig on a fake Redis.
func bubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		r := newRig(t, client)
		r.looks = 50 * time.Millisecond // as a worker's: looks that find nothing are most of what virtual time costs
		test(r)
	})
}

func TestALostWakeCostsDelayAndNoTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		ran := make(chan time.Time, 1)
		r.serve(r.options(nil), asynq.Config{}, func(context.Context, *asynq.Task) error {
			ran <- time.Now()
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		r.events.await(r, 1, parked)
		if err := lease.Release(context.Background()); err != nil { // and its holder crashes before it wakes anyone
			r.Fatal(err)
		}
		released := time.Now()
		if took := receive(r.T, ran).Sub(released); took > 33*time.Second {
			r.Errorf("the task ran %v after the release, want a second after the holder's TTL at the latest", took)
		} else {
			r.Logf("the task ran %v after the release", took)
		}
	})
}

func TestACrashedHolderDelaysItsWaitersByItsTTL(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		// As another program would leave it that crashed: a lock that no process renews or releases.
		if err := r.client.Set(r.Context(), "railtoken:lock:{order:1}", "foreign", 20*time.Second).Err(); err != nil {
			r.Fatal(err)
		}
		ran := make(chan time.Time, 10)
		r.serve(r.options(nil), asynq.Config{Concurrency: 4}, func(context.Context, *asynq.Task) error {
			ran <- time.Now()
			return nil
		})
		began := time.Now()
		for range 10 {
			r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(1))
		}
		var last time.Duration
		for range 10 {
			last = receive(r.T, ran).Sub(began)
		}
		if last < 20*time.Second || last > 25*time.Second {
			r.Errorf("the last of ten waiters ran after %v, want soon after the TTL of 20s", last)
		}
	})
}

func TestACallbackMayTakeATaskAtItsLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		r.hold("order:1")
		got := make(chan *middleware.ConflictError, 1)
		strategy := middleware.Requeue{Delay: time.Second, Limits: delayqueue.Limits{Conflicts: 1}, OnLimit: func(_ context.Context, task *asynq.Task, c *middleware.ConflictError) error {
			if task.Type() != "test" {
				t.Errorf("the callback got a task of type %q", task.Type())
			}
			got <- c
			return nil
		}}
		r.serve(r.options(strategy), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		if c := receive(r.T, got); c.Limit != "conflicts" {
			t.Errorf("the callback got %+v", c)
		}
		r.gone(task)
	})
}
