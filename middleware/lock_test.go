package middleware_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestAConflictParksTheTaskAndTheReleaseWakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	ran := make(chan time.Time, 1)
	r.serve(r.options(nil), asynq.Config{Concurrency: 2}, func(context.Context, *asynq.Task) error {
		ran <- time.Now()
		return nil
	})
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(task, asynq.TaskStateRetry)
	if waiters, err := r.queue.Inspector().Waiters(t.Context(), "order:1", 10); err != nil || len(waiters) != 1 || waiters[0].Task != task {
		t.Fatalf("waiters %v, %v; want the task", waiters, err)
	}
	released := time.Now()
	r.giveBack(lease)
	started := receive(t, ran)
	t.Logf("the handler began %v after the release", started.Sub(released))
	r.gone(task)
	if waiters, err := r.queue.Inspector().Waiters(t.Context(), "order:1", 10); err != nil || len(waiters) != 0 {
		t.Errorf("waiters %v, %v; want none", waiters, err)
	}
}

func TestAConflictUsesUpNoRetry(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		lease := r.hold("order:1")
		strategy := middleware.Requeue{Delay: time.Second}
		r.serve(r.options(strategy), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
		task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
		conflicts := r.events.await(r, 4, parked)
		info := r.settled(task, asynq.TaskStateRetry)
		if info.Retried != 0 {
			r.Errorf("retried %d times after %d conflicts, want 0", info.Retried, len(conflicts))
		}
		r.giveBack(lease)
		r.gone(task)
	})
}

func TestTheLastAttemptIsNotArchivedByAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	var runs atomic.Int32
	cfg := asynq.Config{DelayedTaskCheckInterval: 50 * time.Millisecond}
	r.serve(r.options(middleware.Requeue{Delay: time.Second}), cfg, func(context.Context, *asynq.Task) error {
		runs.Add(1)
		return nil
	})
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0), asynq.Timeout(42*time.Second), asynq.Retention(time.Hour))
	r.events.await(t, 3, parked)
	if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 0 || info.MaxRetry != 0 || info.Timeout != 42*time.Second || info.Retention != time.Hour {
		t.Errorf("the task that waits is %+v", info)
	}
	r.giveBack(lease)
	r.settled(task, asynq.TaskStateCompleted)
	if n := runs.Load(); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
	if archived, err := r.inspect.ListArchivedTasks("default"); err != nil || len(archived) != 0 {
		t.Errorf("archived: %v, %v", archived, err)
	}
}

func TestATaskThatHasWaitedHasTheRetriesOfBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	var runs atomic.Int32
	cfg := asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}
	r.serve(r.options(nil), cfg, func(context.Context, *asynq.Task) error {
		runs.Add(1)
		return errors.New("no")
	})
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
	r.events.await(t, 1, parked)
	r.settled(task, asynq.TaskStateRetry)
	r.giveBack(lease)
	r.settled(task, asynq.TaskStateArchived)
	if n := runs.Load(); n != 1 {
		t.Errorf("a task with no retries ran %d times", n)
	}
}

func TestFailFastArchivesWithAReasonThatCanBeReadBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	r.serve(r.options(middleware.FailFast{}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	task := r.enqueue(payload{Key: "order:1"})
	info := r.settled(task, asynq.TaskStateArchived)
	conflict, err := middleware.ParseConflict(info.Result)
	if err != nil {
		t.Fatal(err)
	}
	if conflict.Key != "order:1" || conflict.Holder.Label != "the-holder" || conflict.RetryAfter <= 0 || conflict.Task != task {
		t.Errorf("the reason is %+v", conflict)
	}
	if !strings.Contains(info.LastErr, `"order:1"`) || !strings.Contains(info.LastErr, "the-holder") {
		t.Errorf("the last error is %q", info.LastErr)
	}
}

func TestFailFastRetryCountsAsAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	failed := make(chan error, 1)
	cfg := asynq.Config{ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed <- err })}
	r.serve(r.options(middleware.FailFast{Outcome: middleware.Retry}), cfg, func(context.Context, *asynq.Task) error { return nil })
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	if err := receive(t, failed); !errors.Is(err, locking.ErrHeld) {
		t.Errorf("the error handler got %v", err)
	}
	if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 1 {
		t.Errorf("retried %d times, want 1", info.Retried)
	}
}

func TestFailFastDiscardDeletesTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	r.serve(r.options(middleware.FailFast{Outcome: middleware.Discard}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	task := r.enqueue(payload{Key: "order:1"})
	r.events.await(t, 1, ended(middleware.Discard))
	r.gone(task)
}

// The task is done: it keeps its retries, and with a Retention tells why it has not run.
func TestFailFastCompleteEndsTheTaskWithoutARun(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	r.serve(r.options(middleware.FailFast{Outcome: middleware.Complete}), asynq.Config{}, func(context.Context, *asynq.Task) error {
		t.Error("it has run beside the holder")
		return nil
	})
	forgotten := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0))
	r.events.await(t, 1, ended(middleware.Complete))
	r.gone(forgotten)
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(0), asynq.Retention(time.Hour))
	info := r.settled(task, asynq.TaskStateCompleted)
	conflict, err := middleware.ParseConflict(info.Result)
	if err != nil {
		t.Fatal(err)
	}
	if conflict.Outcome != middleware.Complete || conflict.Key != "order:1" || conflict.Holder.Label != "the-holder" {
		t.Errorf("its result is %+v", conflict)
	}
	if info.LastErr != "" {
		t.Errorf("its last error is %q", info.LastErr)
	}
}

func TestWaitStaysInTheSlotAndWakesEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	// With delays of minutes only the notice of the release can wake it in time.
	strategy := middleware.Wait{Max: time.Hour, Initial: 5 * time.Minute, Interval: 5 * time.Minute}
	opts := r.options(strategy)
	opts.SlotBudget = 1
	ran := make(chan struct{}, 1)
	r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})
	task := r.enqueue(payload{Key: "order:1"}, asynq.Timeout(2*time.Hour))
	for began := time.Now(); ; <-time.After(time.Millisecond) { // until the subscription is there
		if n := r.client.PubSubNumSub(t.Context(), "railtoken:lock:{order:1}").Val(); n["railtoken:lock:{order:1}"] == 1 {
			break
		}
		if time.Since(began) > limit {
			t.Fatal("the waiting task did not watch its key")
		}
	}
	if n := r.budget.InUse(); n != 1 {
		t.Errorf("%d places of the budget are in use, want 1", n)
	}
	r.giveBack(lease)
	receive(t, ran)
	r.gone(task)
	if n := r.budget.InUse(); n != 0 {
		t.Errorf("%d places of the budget are in use afterwards", n)
	}
}

func TestOverTheSlotBudgetTheNextStrategyDecides(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	opts := r.options(middleware.Wait{Max: time.Hour}.Then(middleware.Requeue{}))
	opts.SlotBudget = 2
	r.serve(opts, asynq.Config{Concurrency: 10}, func(context.Context, *asynq.Task) error { return nil })
	for range 6 {
		r.enqueue(payload{Key: "order:1"}, asynq.Timeout(2*time.Hour))
	}
	r.events.await(t, 4, parked)
	if n := r.budget.InUse(); n != 2 {
		t.Errorf("%d tasks wait in their slots, want 2", n)
	}
	r.giveBack(lease)
	r.events.await(t, 6, func(e middleware.Event) bool { return e.Kind == middleware.Released })
}

func TestAStoppingServerParksTasksThatWaitInSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.hold("order:1")
	r.serve(r.options(middleware.Wait{Max: time.Hour}), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	task := r.enqueue(payload{Key: "order:1"}, asynq.Timeout(2*time.Hour))
	r.events.await(t, 1, func(e middleware.Event) bool { return e.Kind == middleware.Refused })
	r.attached.Stop()
	r.settled(task, asynq.TaskStateRetry)
}

func TestALostLeaseTurnsSuccessIntoFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	for queue, want := range map[string]struct {
		retries int
		state   asynq.TaskState
		retried int
	}{
		"plain":     {retries: 3, state: asynq.TaskStateRetry, retried: 1},
		"last":      {retries: 0, state: asynq.TaskStateArchived},
		"committed": {retries: 0},
	} {
		committed := queue == "committed"
		lost := make(chan error, 1)
		failed := make(chan error, 1)
		opts := r.options(nil)
		opts.TTL, opts.MaxHold = time.Second, time.Second
		cfg := asynq.Config{
			Queues:       map[string]int{queue: 1},
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { failed <- err }),
		}
		r.serve(opts, cfg, func(ctx context.Context, _ *asynq.Task) error {
			lease, _ := locking.FromContext(ctx)
			if committed {
				lease.MarkCommitted()
			}
			<-ctx.Done()
			lost <- context.Cause(ctx)
			return nil
		})
		task := r.enqueue(payload{Key: queue}, asynq.MaxRetry(want.retries), asynq.Queue(queue))
		if err := receive(t, lost); !errors.Is(err, locking.ErrLost) {
			t.Errorf("the cause of the handler's context is %v, want ErrLost", err)
		}
		if committed {
			r.gone(task)
			continue
		}
		if err := receive(t, failed); !errors.Is(err, locking.ErrLost) {
			t.Errorf("the error is %v, want ErrLost", err)
		}
		if info := r.settled(task, want.state); info.Retried != want.retried {
			t.Errorf("%s: retried %d times, want %d", queue, info.Retried, want.retried)
		}
	}
}

func TestAPanicGivesTheKeysBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.serve(r.options(nil), asynq.Config{}, func(context.Context, *asynq.Task) error { panic("no") })
	task := r.enqueue(payload{Key: "order:1"}, asynq.MaxRetry(3))
	r.settled(task, asynq.TaskStateRetry)
	r.hold("order:1")
}

func TestPoisonIsArchivedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.serve(r.options(nil), asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
	for name, p := range map[string]struct{ body, want string }{
		"undecodable":   {`{"key": 7}`, "not the JSON of a middleware_test.payload"},
		"no JSON":       {"\xff\x00", "not the JSON"},
		"empty key":     {`{"n": 1}`, "key is empty"},
		"oversized key": {`{"key": "` + strings.Repeat("x", 5000) + `"}`, "5000 bytes, more than the 1024 allowed"},
	} {
		info, err := r.tasks.Enqueue(asynq.NewTask("test", []byte(p.body)))
		if err != nil {
			t.Fatal(err)
		}
		got := r.settled(delayqueue.Task{Queue: info.Queue, ID: info.ID}, asynq.TaskStateArchived)
		if !strings.Contains(got.LastErr, p.want) || !strings.Contains(got.LastErr, `"test"`) {
			t.Errorf("%s: the last error is %q, want it to name the type and say %q", name, got.LastErr, p.want)
		}
	}
}
