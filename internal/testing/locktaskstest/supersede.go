package locktaskstest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// Supersede has a task on one worker supersede a task on another one, and fails unless that is told, keeps its lease until Grace is over,
// and its late write is refused. write writes under a token, and returns an error that matches [fence.ErrFenced] if a larger one has
// written before.
func Supersede(t *testing.T, newLocker func() locking.Locker, write func(ctx context.Context, token fence.Token) error) {
	t.Helper()
	const closing = "account:close"
	server, key := redistest.Start(t), middleware.Key("account", "a")
	began, deposed, closed, late := make(chan struct{}), make(chan error, 1), make(chan struct{}), make(chan error, 1)
	start := func(kind string, strategy middleware.Strategy, run func(ctx context.Context, lease *locking.Lease, token fence.Token) error) {
		w, err := worker.New(worker.Config{
			Redis: worker.Redis{Addr: server.Addr()}, Locker: newLocker(), Logger: slog.New(slog.DiscardHandler), Queues: map[string]int{kind: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.Handle(w, kind, worker.Handler[account]{
			Keys: keysOf, Group: "accounts", OnSuperseded: middleware.Discard, Strategy: strategy,
			Run: func(ctx context.Context, _ account) error {
				lease, _ := locking.FromContext(ctx)
				n, err := lease.Fence(ctx)
				if err != nil {
					return err
				}
				return run(ctx, lease, fence.Token{Key: key, N: n})
			},
		}); err != nil {
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
		producer, err := worker.NewClient(worker.Redis{Addr: server.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		if _, err := producer.Enqueue(t.Context(), kind, account{"a"}, asynq.Queue(kind)); err != nil {
			t.Fatal(err)
		}
	}
	start(taskType, nil, func(ctx context.Context, lease *locking.Lease, token fence.Token) error {
		close(began)
		<-ctx.Done()
		if cause, ok := errors.AsType[*middleware.CancelledError](context.Cause(ctx)); !ok || cause.Next.Queue != closing || lease.Err() != nil {
			t.Errorf("the holder is told %v, and its lease has %v", context.Cause(ctx), lease.Err())
		}
		<-lease.Done()
		deposed <- lease.Err()
		<-closed
		late <- write(context.WithoutCancel(ctx), token)
		return nil
	})
	redistest.Receive(t, began, timeout)
	start(closing, middleware.Supersede{Grace: 100 * time.Millisecond}, func(ctx context.Context, _ *locking.Lease, token fence.Token) error {
		defer close(closed)
		return write(ctx, token)
	})
	if loss, ok := errors.AsType[*locking.LostError](redistest.Receive(t, deposed, timeout)); !ok || loss.Reason != locking.LossDeposed {
		t.Errorf("the lease of the holder has %v", loss)
	}
	if err := redistest.Receive(t, late, timeout); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("the late write returns %v, want one that is refused", err)
	}
}
