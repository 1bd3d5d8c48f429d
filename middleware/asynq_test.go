package middleware_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// These tests hold asynq to what the middleware and the delay queue rely on or work around. When one fails after an
// upgrade, the code that it names needs another look.

// bare runs asynq without the middleware.
func (r *rig) bare(cfg asynq.Config, handler asynq.HandlerFunc) *asynq.Server {
	r.Helper()
	cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval, cfg.LogLevel = 10*time.Millisecond, 200*time.Millisecond, asynq.FatalLevel
	server := asynq.NewServerFromRedisClient(r.client, cfg)
	if err := server.Start(handler); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(server.Shutdown)
	return server
}

// Queue.Move exists because of this.
func TestAsynqArchivesTheLastAttemptWhateverIsFailureSays(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.bare(asynq.Config{IsFailure: func(error) bool { return false }}, func(context.Context, *asynq.Task) error { return errors.New("conflict") })
	task := r.enqueue(payload{}, asynq.MaxRetry(0))
	r.settled(task, asynq.TaskStateArchived)
}

// Parking rests on this: the retry counter stays, and the very error reaches RetryDelayFunc.
func TestAsynqKeepsTheRetryCountOfANonFailureAndHandsItsErrorOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	conflict := errors.New("conflict")
	seen := make(chan bool, 10)
	cfg := asynq.Config{
		IsFailure: func(error) bool { return false },
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			seen <- errors.Is(err, conflict)
			return time.Hour
		},
	}
	r.bare(cfg, func(context.Context, *asynq.Task) error { return conflict })
	task := r.enqueue(payload{}, asynq.MaxRetry(1))
	if info := r.settled(task, asynq.TaskStateRetry); info.Retried != 0 {
		t.Errorf("retried %d times", info.Retried)
	}
	if !receive(t, seen) {
		t.Error("RetryDelayFunc got another error")
	}
}

// delayqueue.WholeSeconds exists because of this.
func TestAsynqRunsADelayedTaskBeforeItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	task := r.enqueue(payload{}, asynq.ProcessIn(1999*time.Millisecond))
	score := r.client.ZScore(t.Context(), "asynq:{default}:scheduled", task.ID).Val()
	if score != float64(int64(score)) {
		t.Error("asynq keeps fractions of a second now")
	}
}

// The wake script rests on these names and fields.
func TestAsynqKeepsItsTasksWhereTheWakeLooksForThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	ctx := t.Context()
	scheduled, first, second := r.enqueue(payload{}, asynq.ProcessIn(time.Hour)), r.enqueue(payload{}), r.enqueue(payload{})
	if s := r.client.HGet(ctx, "asynq:{default}:t:"+scheduled.ID, "state").Val(); s != "scheduled" {
		t.Errorf("state %q", s)
	}
	if pending := r.client.LRange(ctx, "asynq:{default}:pending", 0, -1).Val(); len(pending) != 2 || pending[1] != first.ID || pending[0] != second.ID {
		t.Errorf("pending %v, want the first task at the right end", pending)
	}
	r.bare(asynq.Config{Concurrency: 1, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }},
		func(context.Context, *asynq.Task) error { return errors.New("no") })
	r.settled(first, asynq.TaskStateRetry)
	if n := r.client.ZScore(ctx, "asynq:{default}:retry", first.ID).Val(); n == 0 {
		t.Error("a task to retry is not in the sorted set retry")
	}
	if s := r.client.HGet(ctx, "asynq:{default}:t:"+first.ID, "state").Val(); s != "retry" {
		t.Errorf("state %q", s)
	}
}

// A task that is to wait in another queue stays in its own when its ID is taken there, because of this.
func TestAsynqRefusesASecondTaskWithTheSameIDInAQueueOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	r.enqueue(payload{}, asynq.TaskID("a"))
	if _, err := r.tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID("a")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("a second task with the same ID: %v", err)
	}
	if other := r.enqueue(payload{}, asynq.TaskID("a"), asynq.Queue("other")); other != (delayqueue.Task{Queue: "other", ID: "a"}) {
		t.Errorf("in another queue it is %v", other)
	}
}

// The fields that parking adds to asynq's hash of a task live and die with it because of this.
func TestAsynqLeavesForeignFieldsOfATaskAloneAndDeletesThemWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	ctx := t.Context()
	task := r.enqueue(payload{}, asynq.MaxRetry(1))
	hash := "asynq:{default}:t:" + task.ID
	r.client.HSet(ctx, hash, line.WaitField, "7")
	fail := true
	r.bare(asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}, func(context.Context, *asynq.Task) error {
		if fail {
			fail = false
			return errors.New("no")
		}
		return nil
	})
	r.settled(task, asynq.TaskStateRetry)
	if n := r.client.HGet(ctx, hash, line.WaitField).Val(); n != "7" {
		t.Errorf("after a retry the field is %q", n)
	}
	if err := r.inspect.RunTask(task.Queue, task.ID); err != nil {
		t.Fatal(err)
	}
	r.gone(task)
}

// The lease is held until the handler returns because of this: asynq runs a task again while its old handler still
// runs.
func TestAsynqAbandonsAHandlerThatIsPastItsTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	goOn := make(chan struct{})
	began := make(chan struct{}, 2)
	r.bare(asynq.Config{Concurrency: 2, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 }}, func(context.Context, *asynq.Task) error {
		began <- struct{}{}
		<-goOn // heeds no context
		return nil
	})
	r.enqueue(payload{}, asynq.Timeout(time.Second), asynq.MaxRetry(1))
	receive(t, began)
	receive(t, began)
	close(goOn)
}
