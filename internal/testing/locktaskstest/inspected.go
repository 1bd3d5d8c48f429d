package locktaskstest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/inspect"
	"github.com/railtoken/railtoken/inspect/explain"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// Inspect has one task hold a key of newLocker and another one wait for it, and fails unless package inspect, which sees
// no lock of this backend, names the holder, explains the wait with it, and refuses to depose it.
func Inspect(t *testing.T, backend string, newLocker func() locking.Locker) {
	t.Helper()
	server, holds := redistest.Start(t), make(chan struct{})
	parked := make(chan delayqueue.Task, 1)
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: server.Addr()}, Locker: newLocker(), Logger: slog.New(slog.DiscardHandler),
		Strategy: middleware.Requeue{}, ShutdownTimeout: 10 * time.Millisecond,
		Observer: func(_ context.Context, e middleware.Event) {
			switch e.Kind {
			case middleware.Acquired:
				close(holds)
			case middleware.Parked:
				parked <- e.Task
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = worker.Handle(w, taskType, worker.Handler[account]{Keys: keysOf, Run: func(ctx context.Context, _ account) error {
		<-ctx.Done()
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() }) // the task that holds the key does not end by itself
	client := server.Client(t)
	tasks := asynq.NewClientFromRedisClient(client)
	enqueue := func(id string) {
		if _, err := tasks.Enqueue(asynq.NewTask(taskType, []byte(`{"ID":"a"}`)), asynq.TaskID(id)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("holder")
	redistest.Receive(t, holds, timeout)
	enqueue("waiter")
	waiter := redistest.Receive(t, parked, timeout)

	i, err := inspect.New(inspect.Options{Tasks: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	key := middleware.Key("account", "a")
	var k inspect.KeyState
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(timeout); k.Holder == nil; <-tick.C {
		if k, err = i.Look(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("no worker reports the holder")
		}
	}
	if k.Holder.Backend != backend || k.Holder.Task.Task.ID != "holder" {
		t.Errorf("the holder is %+v, of the task %+v", k.Holder, k.Holder.Task)
	}
	e, err := explain.Task(t.Context(), explain.Options{Tasks: client, Inspector: i}, waiter)
	if err != nil || e.Cause != explain.Held || !strings.HasSuffix(e.HolderTask, "/holder") {
		t.Errorf("the wait is explained by %+v, %v", e, err)
	}
	_, err = i.Depose(t.Context(), key, inspect.Deposition{Expect: "0123456789abcdef", By: "ann", Why: "it hangs"})
	if !errors.Is(err, inspect.ErrChanged) || !strings.Contains(err.Error(), "another store ("+backend+")") {
		t.Errorf("Depose: %v", err)
	}
}
