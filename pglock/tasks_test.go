package pglock_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/pglock"
	"github.com/railtoken/railtoken/worker"
)

type account struct{ ID string }

func accountKeys(a account) []string { return []string{middleware.Key("account", a.ID)} }

// Two attached servers and a worker share a queue. Tasks are on Redis, locks and totals in PostgreSQL. Each task reads
// the total of its account and writes it back in a transaction of the least isolation, so one that is not excluded
// shows.
func TestTasksOnRedisAreLockedInPostgres(t *testing.T) {
	t.Parallel()
	d, server := newDatabase(t), redistest.Start(t)
	const tasks = 60
	d.exec(t, "CREATE TABLE accounts AS SELECT chr(97 + i) AS id, 0 AS total FROM generate_series(0, 2) AS i")
	quiet := slog.New(slog.DiscardHandler)
	var done atomic.Int32
	all := make(chan struct{})
	db := d.open(t)
	db.SetMaxOpenConns(16)
	run := func(ctx context.Context, a account) error {
		lease, ok := locking.FromContext(ctx)
		if !ok {
			t.Error("a task runs without a lease")
			return nil
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := pglock.InTx(ctx, tx, lease); err != nil {
			return err
		}
		var total int
		if err := tx.QueryRowContext(ctx, "SELECT total FROM accounts WHERE id = $1", a.ID).Scan(&total); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET total = $1 WHERE id = $2", total+1, a.ID); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		lease.MarkCommitted()
		if done.Add(1) == tasks {
			close(all)
		}
		return nil
	}

	client := asynq.NewClientFromRedisClient(server.Client(t))
	for i := range tasks {
		payload, err := json.Marshal(account{ID: string(rune('a' + i%3))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(asynq.NewTask("account:book", payload)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		gate := locking.NewGate(d.locker(t, pglock.Options{Listen: d.url}), locking.GateOptions{})
		cfg := asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}
		rt, err := attach.New(server.Client(t), cfg, attach.Options{Locker: gate, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		lock := rt.Lock(middleware.PayloadKey(func(a account) string { return accountKeys(a)[0] }))
		srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
		err = srv.Start(lock(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			var a account
			if err := json.Unmarshal(task.Payload(), &a); err != nil {
				return err
			}
			return run(ctx, a)
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
	w, err := worker.New(worker.Config{
		Redis: worker.Redis{Addr: server.Addr()}, Locker: d.locker(t, pglock.Options{}), Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(w, "account:book", worker.Handler[account]{Keys: accountKeys, Run: run}); err != nil {
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
	case <-time.After(60 * time.Second):
		t.Fatalf("%d of %d tasks ran in 60 s", done.Load(), tasks)
	}
	var sum int
	if err := db.QueryRowContext(t.Context(), "SELECT sum(total) FROM accounts").Scan(&sum); err != nil || sum != tasks {
		t.Errorf("the totals are %d (error %v) after %d tasks", sum, err, tasks)
	}
}
