// Package locktaskstest runs tasks that are kept on Redis while their locks are elsewhere, for the tests of lock
// backends.
package locktaskstest

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

const (
	taskType = "account:book"
	timeout  = 60 * time.Second
)

type account struct{ ID string }

func keysOf(a account) []string { return []string{middleware.Key("account", a.ID)} }

// Run enqueues so many tasks for three accounts, and returns when run has succeeded for each. Two attached servers and a
// worker share their queue, each with a lock backend of its own. run finds the lease of its account in ctx.
func Run(t *testing.T, tasks int32, newLocker func() locking.Locker, run func(ctx context.Context, account string) error) {
	t.Helper()
	server, quiet := redistest.Start(t), slog.New(slog.DiscardHandler)
	var done atomic.Int32
	all := make(chan struct{})
	handle := func(ctx context.Context, a account) error {
		if err := run(ctx, a.ID); err != nil {
			return err
		}
		if done.Add(1) == tasks {
			close(all)
		}
		return nil
	}
	client := asynq.NewClientFromRedisClient(server.Client(t))
	for i := range tasks {
		payload, err := json.Marshal(account{ID: string('a' + i%3)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(asynq.NewTask(taskType, payload)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		gate := locking.NewGate(newLocker(), locking.GateOptions{})
		cfg := asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}
		rt, err := attach.New(server.Client(t), cfg, attach.Options{Locker: gate, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		lock := rt.Lock(middleware.PayloadKey(func(a account) string { return keysOf(a)[0] }))
		srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
		err = srv.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			var a account
			if err := json.Unmarshal(task.Payload(), &a); err != nil {
				return err
			}
			return handle(ctx, a)
		})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			rt.Stop()
			srv.Shutdown()
			if err := rt.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: server.Addr()}, Locker: newLocker(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, taskType, worker.Handler[account]{Keys: keysOf, Run: handle}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-all:
	case <-time.After(timeout):
		t.Errorf("%d of %d tasks ran in %v", done.Load(), tasks, timeout)
		tellLeft(t, server)
		t.FailNow()
	}
}

// tellLeft logs which tasks are left, and why.
func tellLeft(t *testing.T, server *redistest.Server) {
	t.Helper()
	i := asynq.NewInspectorFromRedisClient(server.Client(t))
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		i.ListPendingTasks, i.ListActiveTasks, i.ListRetryTasks, i.ListArchivedTasks,
	} {
		left, err := list("default", asynq.PageSize(1000))
		if err != nil {
			t.Error(err)
		}
		for _, task := range left {
			t.Logf("%s %s is %v: retried %d times, due in %v, last error %q", task.ID, task.Payload, task.State, task.Retried,
				time.Until(task.NextProcessAt).Round(time.Millisecond), task.LastErr)
		}
	}
}
