package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// wakeUnfetched parks the tasks a and b on a key and wakes a, which no server fetches. queue is that of b.
func wakeUnfetched(r *rig, queue string) {
	r.Helper()
	waiting := r.attach(r.options(nil), asynq.Config{Queues: map[string]int{"default": 1, "other": 1}}).Queue()
	lease := r.hold("order:1")
	for _, id := range []string{"a", "b"} {
		at := "default"
		if id == "b" {
			at = queue
		}
		if _, err := r.attached.Producer(nil).EnqueueContext(r.Context(), taskFor(r.T, "order:1"), attach.Keys("order:1"),
			attach.WhenHeld(middleware.Requeue{}), asynq.TaskID(id), asynq.Queue(at)); err != nil {
			r.Fatal(err)
		}
	}
	if err := lease.Release(r.Context()); err != nil {
		r.Fatal(err)
	}
	if w, err := waiting.Wake(r.Context(), "order:1", delayqueue.WakeOptions{}); err != nil || len(w.Tasks) != 1 || w.Tasks[0].ID != "a" {
		r.Fatalf("woke %+v, %v", w, err)
	}
}

// The task that was woken is done, and another server has woken the next one, which has the key.
func TestNoTaskIsWokenInPlaceOfADoneOne(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		wakeUnfetched(r, "default")
		if err := r.inspect.DeleteTask("default", "a"); err != nil {
			r.Fatal(err)
		}
		lease := r.hold("order:1")
		time.Sleep(20 * time.Second)
		held := time.Now()
		if err := lease.Release(r.Context()); err != nil { // and nobody wakes b
			r.Fatal(err)
		}
		if e := r.events.await(r, 1, wokeBy(middleware.ByRepair))[0]; e.At.Before(held) {
			r.Errorf("%+v, while the key was held", e)
		}
	})
}

func TestAWakeIsNotLostWhileSlotsAreBusy(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"busy": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) {
				wakeUnfetched(r, "other")
				if paused {
					if err := r.inspect.PauseQueue("default"); err != nil {
						r.Fatal(err)
					}
				}
				if e := r.events.await(r, 1, wokeBy(middleware.ByRepair))[0]; e.Next.ID != "b" || e.WakeLost != paused {
					r.Errorf("%+v; want it lost: %v", e, paused)
				}
			})
		})
	}
}

func TestATimerAfterACrashIsALostWake(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		r.serve(r.options(nil), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
		r.events.await(r, 1, parked)
		if err := lease.Release(r.Context()); err != nil { // and its holder crashes before it wakes anyone
			r.Fatal(err)
		}
		if e := r.events.await(r, 1, ofKind(middleware.Acquired))[0]; !e.WakeLost {
			r.Errorf("%+v", e)
		}
	})
}

// A program without fence counters takes the key from a task, and will wake nobody.
func TestAKeyLostToAForeignProgramWakesTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		runs, ended := make(chan time.Time, 8), false
		r.serve(r.options(parkAlways()), asynq.Config{Concurrency: 4}, func(ctx context.Context, task *asynq.Task) error {
			runs <- time.Now()
			if id, _ := asynq.GetTaskID(ctx); id == "first" && !ended {
				ended = true
				r.enqueue(payload{Key: "order:1"}, asynq.TaskID("next"))
				r.events.await(r, 1, parked)
				r.client.Set(r.Context(), "railtoken:lock:{order:1}", "of another program", 2*time.Second)
				lease, _ := locking.FromContext(ctx)
				lease.MarkCommitted() // it does not run again
			}
			return nil
		})
		r.enqueue(payload{Key: "order:1"}, asynq.TaskID("first"))
		lost := receive(r.T, runs)
		if took := receive(r.T, runs).Sub(lost); took > 6*time.Second {
			r.Errorf("the next task ran %v after the key was lost for 2 s", took)
		} else {
			r.Logf("the next task ran %v after the key was lost for 2 s", took)
		}
	})
}
