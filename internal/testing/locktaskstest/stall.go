package locktaskstest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/items"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// stallTTL is the TTL of the leases that expire.
const stallTTL = 3 * time.Second

// Stall fails unless the success of a task, an item, a task whose items share a lease, and of locking.Do counts although
// the lock store stood still until their leases had expired on it, and does not count if rival had the key afterwards.
// The store must stand still for longer than 3 s between stop and resume.
func Stall(t *testing.T, locker, rival locking.Locker, stop, resume func()) {
	t.Helper()
	server := redistest.Start(t)
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: server.Addr()}, Locker: locker, LockTTL: stallTTL, Concurrency: 16,
		Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	began, end := make(chan struct{}, 16), make(chan struct{})
	work := func() {
		began <- struct{}{}
		<-end
	}
	handler := worker.Handler[account]{Keys: keysOf, Run: func(context.Context, account) error { work(); return nil }}
	split := items.Handler[account, string]{
		Split:    func(a account) []string { return []string{a.ID} },
		ItemKeys: func(id string) []string { return keysOf(account{id}) },
		Run:      func(context.Context, string) error { work(); return nil },
	}
	whole := split
	whole.Policy = items.Whole
	err = errors.Join(worker.Handle(w, "task", handler), worker.HandleItems(w, "item", split),
		worker.HandleItems(w, "items", whole), w.Start(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Shutdown() })
	producer, err := worker.NewClient(worker.Redis{Addr: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })

	kinds, fates := []string{"task", "item", "items"}, []string{"alone", "taken"}
	tasks, done := map[string]*asynq.TaskInfo{}, map[string]chan error{}
	for _, fate := range fates {
		for _, kind := range kinds {
			id := kind + "-" + fate
			tasks[id], err = producer.Enqueue(t.Context(), kind, account{id}, asynq.Retention(time.Hour), asynq.MaxRetry(0))
			if err != nil {
				t.Fatal(err)
			}
		}
		result := make(chan error, 1)
		done[fate] = result
		go func() {
			result <- locking.Do(context.WithoutCancel(t.Context()), locker, keysOf(account{"do-" + fate}), locking.Options{TTL: stallTTL},
				func(context.Context, *locking.Lease) error { work(); return nil })
		}()
	}
	for range len(fates) * (len(kinds) + 1) {
		redistest.Receive(t, began, timeout)
	}
	stop()
	<-time.After(2 * stallTTL)
	resume()
	for _, kind := range append(kinds, "do") {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		lease, err := locking.Wait(ctx, rival, []string{middleware.Key("account", kind+"-taken")}, locking.Options{})
		if err == nil {
			err = lease.Release(ctx)
		}
		cancel()
		if err != nil {
			t.Fatalf("another owner does not get the key of %s: %v", kind, err)
		}
	}
	close(end)
	inspector := asynq.NewInspectorFromRedisClient(server.Client(t))
	for id, task := range tasks {
		got := settled(t, inspector, task)
		want := asynq.TaskStateCompleted
		if id[len(id)-len("taken"):] == "taken" {
			want = asynq.TaskStateArchived
		}
		if got.State != want {
			t.Errorf("%s is %v, want %v; its error: %q", id, got.State, want, got.LastErr)
		}
	}
	if err := redistest.Receive(t, done["alone"], timeout); err != nil {
		t.Errorf("Do, alone: %v", err)
	}
	if err := redistest.Receive(t, done["taken"], timeout); !errors.Is(err, locking.ErrLost) {
		t.Errorf("Do, taken: %v, want ErrLost", err)
	}
}

// settled waits until a task is completed or archived.
func settled(t *testing.T, i *asynq.Inspector, task *asynq.TaskInfo) *asynq.TaskInfo {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(timeout); ; <-tick.C {
		info, err := i.GetTaskInfo(task.Queue, task.ID)
		if err == nil && (info.State == asynq.TaskStateCompleted || info.State == asynq.TaskStateArchived) {
			return info
		}
		if time.Now().After(end) {
			t.Fatalf("task %s has not ended: %+v, %v", task.ID, info, err)
		}
	}
}
