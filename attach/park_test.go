package attach_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
)

// A handler has a conflict of its own, and parks its task.
func TestATaskThatItsHandlerParksIsWoken(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]bool{"with a lock": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.attach(asynq.Config{
				Concurrency:  2,
				ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { t.Error(err) }),
			}, attach.Options{})
			runs, returned := make(chan string, 4), make(chan error, 1)
			handler := asynq.Handler(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				runs <- id
				if string(task.Payload()) == "first" && len(returned) == 0 {
					err := a.Queue().Park(ctx, "warehouse", delayqueue.ParkOptions{RetryAfter: time.Hour})
					returned <- err
					return err
				}
				return nil
			}))
			if lock {
				handler = a.Lock(byPayload)(handler)
			}
			r.serve(a.Client(), a.Config(), handler)
			task := r.enqueue("first", asynq.MaxRetry(0), asynq.Retention(time.Hour))
			receive(t, runs)
			info := r.settled(task, asynq.TaskStateRetry)
			if info.Retried != 0 || time.Until(info.NextProcessAt) < 59*time.Minute {
				t.Errorf("%+v, want no retry used up, and a timer of an hour", info)
			}
			waiters, err := a.Queue().Inspector().Waiters(t.Context(), "warehouse", 10)
			if err != nil || len(waiters) != 1 || waiters[0].Task.ID != task.ID || waiters[0].Conflicts != 1 {
				t.Errorf("%+v, %v, want the task", waiters, err)
			}
			r.settled(r.enqueue("other", asynq.Retention(time.Hour)), asynq.TaskStateCompleted) // its slot is free
			receive(t, runs)
			woken, err := a.Queue().Wake(t.Context(), "warehouse", delayqueue.WakeOptions{})
			if err != nil || len(woken.Tasks) != 1 {
				t.Errorf("%+v, %v, want one task woken", woken, err)
			}
			if id := receive(t, runs); id != task.ID {
				t.Errorf("%s ran, want %s", id, task.ID)
			}
			r.settled(task, asynq.TaskStateCompleted)
			if err := <-returned; !attach.Waits(err) {
				t.Errorf("Park returned %v", err)
			}
		})
	}
}

func TestAParkThatCannotBeIsAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{})
	other, err := delayqueue.New(r.client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	told := make(chan error, 3)
	r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		told <- other.Park(ctx, "k", delayqueue.ParkOptions{})
		told <- a.Queue().Park(ctx, "k", delayqueue.ParkOptions{RetryAfter: -1})
		ended, cancel := context.WithCancel(ctx)
		cancel()
		told <- a.Queue().Park(ended, "k", delayqueue.ParkOptions{})
		return nil
	}))
	task := r.enqueue("k", asynq.Retention(time.Hour))
	if err := receive(t, told); !errors.Is(err, delayqueue.ErrNotOurs) {
		t.Errorf("a Queue of another server: %v", err)
	}
	if err := receive(t, told); err == nil || attach.Waits(err) {
		t.Errorf("a negative time: %v", err)
	}
	if err := receive(t, told); !errors.Is(err, context.Canceled) || attach.Waits(err) {
		t.Errorf("a run that was given up: %v", err)
	}
	r.settled(task, asynq.TaskStateCompleted)
	if err := a.Queue().Park(t.Context(), "k", delayqueue.ParkOptions{}); err == nil {
		t.Error("Park outside of a handler has no error")
	}
}

// A task parks again each time that it is woken, until it has reached its limit.
func TestAParkedTaskReachesItsLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.attach(asynq.Config{Concurrency: 2}, attach.Options{})
	limits := map[string]delayqueue.Limits{"conflicts": {Conflicts: 2}, "waiters": {Waiters: 1}, "total": {Total: 1}}
	ended := make(chan error, 3)
	r.serve(a.Client(), a.Config(), asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := a.Queue().Park(ctx, "k", delayqueue.ParkOptions{Limits: limits[string(task.Payload())]})
		if !attach.Waits(err) {
			ended <- err
			return nil
		}
		return err
	}))
	task := r.enqueue("conflicts", asynq.Retention(time.Hour))
	for range 2 {
		r.settled(task, asynq.TaskStateRetry)
		for _, full := range []string{"waiters", "total"} {
			r.enqueue(full)
			if err := receive(t, ended); !errors.Is(err, delayqueue.ErrLimit) {
				t.Errorf("%s: %v", full, err)
			}
		}
		if woken, err := a.Queue().Wake(t.Context(), "k", delayqueue.WakeOptions{}); err != nil || len(woken.Tasks) != 1 {
			t.Errorf("%+v, %v, want one task woken", woken, err)
		}
	}
	if err := receive(t, ended); !errors.Is(err, delayqueue.ErrLimit) {
		t.Errorf("after two conflicts: %v", err)
	}
	r.settled(task, asynq.TaskStateCompleted)
}
