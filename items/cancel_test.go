package items_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The items that run are told, the others do not begin, and what was done stays done.
func TestACancelledTaskOfItemsEndsBetweenThem(t *testing.T) {
	t.Parallel()
	began, causes := make(chan struct{}, 40), make(chan error, 40)
	var later atomic.Bool
	s := newSite(t, handler(func(ctx context.Context, order string) error {
		if order == "0" {
			return nil
		}
		if later.Load() {
			t.Errorf("order %s has begun after the cancellation", order)
		}
		began <- struct{}{}
		<-ctx.Done()
		later.Store(true)
		causes <- context.Cause(ctx)
		return ctx.Err()
	}))
	inspector, err := inspect.New(inspect.Options{Tasks: s.client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inspector.Close() })
	task := s.enqueue("run", ordersFrom(40), asynq.MaxRetry(3))
	redistest.Receive(t, began, patience)
	s.until("an item is done", func() bool { return s.report(task).Done == 1 })
	if told, err := inspector.Cancel(t.Context(), task, inspect.Cancellation{By: "ann", Why: "the truck is full"}); err != nil || !told {
		t.Fatalf("told %v, error %v", told, err)
	}
	if by, ok := errors.AsType[*middleware.CancelledError](redistest.Receive(t, causes, patience)); !ok || by.By != "ann" {
		t.Errorf("the cause of an item's context is %v", by)
	}
	info := s.await(task, asynq.TaskStateArchived)
	if info.Retried != 0 || !strings.Contains(info.LastErr, "cancelled by ann: the truck is full") {
		t.Errorf("it is %+v", info)
	}
	if report := s.report(task); report.Done != 1 {
		t.Errorf("its report is %+v", report)
	}
	release := s.hold(orderKey("0"), orderKey("1"), orderKey("39")) // they are free
	release()
}

// Another task supersedes the run of an item: the whole task stops between its items, and the other one runs.
func TestASupersededTaskOfItemsEndsBetweenThem(t *testing.T) {
	t.Parallel()
	began, causes, ran := make(chan struct{}, 40), make(chan error, 40), make(chan struct{}, 1)
	var later atomic.Bool
	h := handler(func(ctx context.Context, order string) error {
		if order == "0" {
			return nil
		}
		if later.Load() {
			t.Errorf("order %s has begun after the task was superseded", order)
		}
		began <- struct{}{}
		<-ctx.Done()
		later.Store(true)
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	h.Group, h.Parallel = "orders", 2
	s := newSite(t, h, func(c *worker.Config) { c.Queues = map[string]int{"default": 1} })
	w, err := worker.New(worker.Config{Redis: s.redis, Queues: map[string]int{"cancel": 1}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() })
	if err := worker.Handle(w, "cancel", worker.Handler[string]{
		Keys: func(order string) []string { return []string{orderKey(order)} }, Group: "orders", Strategy: middleware.Supersede{},
		Run: func(context.Context, string) error {
			ran <- struct{}{}
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	task := s.enqueue("run", ordersFrom(40), asynq.MaxRetry(3))
	redistest.Receive(t, began, patience)
	s.until("an item is done", func() bool { return s.report(task).Done == 1 })
	next := s.enqueue("cancel", "1", asynq.Queue("cancel"))
	if cause, ok := errors.AsType[*middleware.CancelledError](redistest.Receive(t, causes, patience)); !ok || cause.Next != next {
		t.Errorf("the cause of an item's context is %v", cause)
	}
	redistest.Receive(t, ran, patience)
	info := s.await(task, asynq.TaskStateArchived)
	if info.Retried != 0 || !strings.Contains(info.LastErr, "superseded") {
		t.Errorf("it is %+v", info)
	}
	if report := s.report(task); report.Done != 1 {
		t.Errorf("its report is %+v", report)
	}
}
