package etcdlock_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

type order struct{ ID string }

func orderKeys(o order) []string { return []string{middleware.Key("order", o.ID)} }

// ledger counts the tasks that ran for each order, and whether they were alone, with growing tokens.
type ledger struct {
	t *testing.T

	mu     sync.Mutex
	inside map[string]int
	last   map[string]int64
	done   int
	enough int
	all    chan struct{} // closed after enough tasks
}

// run is the handler of a task.
func (l *ledger) run(ctx context.Context, o order) error {
	lease, ok := locking.FromContext(ctx)
	if !ok {
		l.t.Error("a task runs without a lease")
		return nil
	}
	token, err := lease.Fence(ctx)
	l.mu.Lock()
	l.inside[o.ID]++
	if l.inside[o.ID] != 1 || err != nil || token <= l.last[o.ID] {
		l.t.Errorf("order %s: %d tasks at a time, token %d, %v, after %d", o.ID, l.inside[o.ID], token, err, l.last[o.ID])
	}
	l.last[o.ID] = token
	l.mu.Unlock()
	<-time.After(time.Millisecond) // the work
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside[o.ID]--
	l.done++
	if l.done == l.enough {
		close(l.all)
	}
	return nil
}

// Two attached servers and a worker share a queue. Tasks are on Redis, locks on etcd.
func TestTasksOnRedisAreLockedOnEtcd(t *testing.T) {
	t.Parallel()
	etcd, server := sharedEtcd(t), redistest.Start(t)
	const tasks = 150
	book := &ledger{t: t, inside: map[string]int{}, last: map[string]int64{}, enough: tasks, all: make(chan struct{})}
	quiet := slog.New(slog.DiscardHandler)
	locker := func() locking.Locker { return newLocker(t, etcd, etcdlock.Options{Prefix: "tasks/"}) }

	client := asynq.NewClientFromRedisClient(server.Client(t))
	for i := range tasks {
		payload, err := json.Marshal(order{ID: string(rune('a' + i%3))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(asynq.NewTask("order:audit", payload)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		cfg := asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}
		rt, err := attach.New(server.Client(t), cfg, attach.Options{
			Locker: locking.NewGate(locker(), locking.GateOptions{}), Logger: quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		lock := rt.Lock(middleware.PayloadKey(func(o order) string { return orderKeys(o)[0] }))
		srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
		err = srv.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			var o order
			if err := json.Unmarshal(task.Payload(), &o); err != nil {
				return err
			}
			return book.run(ctx, o)
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
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: server.Addr()}, Locker: locker(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "order:audit", worker.Handler[order]{Keys: orderKeys, Run: book.run}); err != nil {
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
	began := time.Now()
	select {
	case <-book.all:
		t.Logf("%d tasks of three orders took %v", tasks, time.Since(began))
	case <-time.After(30 * time.Second):
		book.mu.Lock()
		defer book.mu.Unlock()
		t.Errorf("%d of %d tasks ran in 30 s", book.done, tasks)
	}
}
