package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// These tests let the deadline of a task pass while it is active and first in its sequence, so that the release before
// wakes no other task. asynq does not run its handler again, but retries the task for days. Task 1 holds the key, task 2
// has the deadline, and only a wake brings task 3 back within the hour.

// untilDeadline is the time until the deadline of task 2.
const untilDeadline = 10 * time.Second

// pastDeadline serves tasks in order. Task 1 holds the key until end is closed. hold is called while asynq ends the run
// of a failed task.
func (r *rig) pastDeadline(strategy middleware.Requeue, end <-chan struct{}, hold func()) *script {
	r.Helper()
	s := &script{steps: func(_ context.Context, n, _ int) error {
		if n == 1 {
			<-end
		}
		return nil
	}}
	cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
		hold()
		return time.Hour
	}}
	r.serve(r.options(strategy), cfg, s.handle)
	r.queued("order:1", 1, 1)
	s.sees(r, time.Minute, 1)
	return s
}

// queuedLate adds task 2, with a deadline.
func (r *rig) queuedLate() delayqueue.Task {
	r.Helper()
	r.queued("order:1", 2, 1, asynq.MaxRetry(5), asynq.Deadline(time.Now().Add(untilDeadline)))
	return delayqueue.Task{Queue: "default", ID: "order:1-2"}
}

// timer brings a task back that is parked, as its own timer does.
func (r *rig) timer(t delayqueue.Task) {
	r.Helper()
	if err := r.inspect.RunTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

// inEachOrder runs a test in virtual time for each strategy that keeps the order.
func inEachOrder(t *testing.T, test func(r *rig, strategy middleware.Requeue)) {
	t.Helper()
	for name, strategy := range inTurn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) { test(r, strategy) })
		})
	}
}

func TestADeadlineBeforeTheFetchHoldsUpNoTask(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		end, ending, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s := r.pastDeadline(strategy, end, func() {
			close(ending)
			<-ended
		})
		r.queuedLate()
		r.queued("order:1", 3, 1)
		r.events.await(r, 2, parked)
		receive(r.T, ending)
		close(end)
		r.events.await(r, 1, released)
		close(ended)
		s.sees(r, time.Minute, 1, 3)
	})
}

func TestADeadlineBeforeTheAttemptHoldsUpNoTask(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		end, began, abandoned := make(chan struct{}), make(chan struct{}), make(chan struct{})
		r.events.during = func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Woke && e.Cause == middleware.ByTimer {
				close(began)
				<-abandoned
			}
		}
		s := r.pastDeadline(strategy, end, func() {})
		late := r.queuedLate()
		r.queued("order:1", 3, 1)
		r.events.await(r, 2, parked)
		r.timer(late)
		receive(r.T, began)
		close(end)
		r.events.await(r, 1, released)
		r.settled(late, asynq.TaskStateRetry)
		close(abandoned)
		s.sees(r, time.Minute, 1, 3)
	})
}

func TestADeadlineAfterTheRefusalHoldsUpNoTask(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		strategy.Limits.Conflicts = 100 // its run decides
		end, refused, abandoned := make(chan struct{}), make(chan struct{}), make(chan struct{})
		r.events.during = func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Refused && e.Task.ID == "order:1-2" {
				close(refused)
				<-abandoned
			}
		}
		s := r.pastDeadline(strategy, end, func() {})
		late := r.queuedLate()
		receive(r.T, refused)
		r.queued("order:1", 3, 1)
		r.events.await(r, 1, parked)
		close(end)
		r.events.await(r, 1, released)
		r.settled(late, asynq.TaskStateRetry)
		close(abandoned)
		s.sees(r, time.Minute, 1, 3)
	})
}

func TestADeadlineOfTheHolderHoldsUpNoTask(t *testing.T) {
	t.Parallel()
	inEachOrder(t, func(r *rig, strategy middleware.Requeue) {
		ended := make(chan struct{})
		s := &script{steps: func(ctx context.Context, n, _ int) error {
			if n == 2 {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		cfg := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
			<-ended
			return time.Hour
		}}
		r.serve(r.options(strategy), cfg, s.handle)
		r.queuedLate()
		s.sees(r, time.Minute, 2)
		r.queued("order:1", 3, 1)
		r.events.await(r, 1, released)
		close(ended)
		s.sees(r, time.Minute, 2, 3)
	})
}
