package locktaskstest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// Separate fails unless a server on the Locker there is refused beside one of the same queue on the Locker here, and one
// on the Locker again, which excludes here, is not.
func Separate(t *testing.T, here, again, there locking.Locker) {
	t.Helper()
	tasks, quiet := redistest.Start(t), slog.New(slog.DiscardHandler)
	first, err := worker.New(worker.Config{Redis: worker.Redis{Addr: tasks.Addr()}, Locker: here, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Handle(first, taskType, worker.Handler[account]{Keys: keysOf, Run: func(context.Context, account) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	if err := first.Start(t.Context()); err != nil { // it has reported then
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Shutdown() })
	// A lock server that was slow when it began to report has its name in a later report.
	client := tasks.Client(t)
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		reports, err := holdings.Read(t.Context(), client)
		if err == nil && len(reports) == 1 && reports[0].Store != "" {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("the reports of the first server do not say where its locks are: %+v, %v", reports, err)
		}
	}
	for locker, separate := range map[locking.Locker]bool{
		again: false, there: true, locking.NewGate(again, locking.GateOptions{}): false, locking.NewGate(there, locking.GateOptions{}): true,
	} {
		store, known := locks.Store(t.Context(), locker)
		a, err := attach.New(tasks.Client(t), asynq.Config{}, attach.Options{Locker: locker, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		err = a.Check(t.Context())
		refusal, refused := errors.AsType[*attach.SeparateLocksError](err)
		if !known || refused != separate || err != nil && !refused {
			t.Errorf("Check of a server with the store %q (known: %v): %v; want it refused: %v", store, known, err, separate)
		}
		if refused && refusal.Store != store {
			t.Errorf("the refusal %v does not name the store %q", refusal, store)
		}
	}
}
