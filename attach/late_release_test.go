package attach_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

func TestALateReleaseWakesTheNextTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var away atomic.Bool
	client := redis.NewClient(&redis.Options{Addr: r.client.Options().Addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if away.Load() {
			cmd.SetErr(os.ErrDeadlineExceeded)
			return os.ErrDeadlineExceeded
		}
		return next(ctx, cmd)
	}))
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	parked, ran := make(chan struct{}, 10), make(chan struct{}, 10)
	a := r.attach(asynq.Config{}, attach.Options{
		Locker: single, RedisKeys: single.RedisKeys, Strategy: middleware.Requeue{Delay: time.Hour},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Parked {
				parked <- struct{}{}
			}
		},
	})
	lease, err := single.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.serve(a.Client(), a.Config(), a.Lock(byPayload)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})))
	r.enqueue("order:1")
	receive(t, parked)
	away.Store(true)
	if err := lease.Release(t.Context()); err == nil {
		t.Error("released without an answer")
	}
	away.Store(false)
	receive(t, ran)
}
