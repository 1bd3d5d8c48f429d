package locking_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// unanswered is a hook that gives no command an answer while it is on, and counts them.
type unanswered struct {
	on   atomic.Bool
	sent atomic.Int64
}

func (u *unanswered) DialHook(next redis.DialHook) redis.DialHook { return next }

func (u *unanswered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !u.on.Load() {
			return next(ctx, cmd)
		}
		u.sent.Add(1)
		cmd.Args() // it is written
		cmd.SetErr(context.DeadlineExceeded)
		return cmd.Err()
	}
}

func (u *unanswered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !u.on.Load() {
			return next(ctx, cmds)
		}
		u.sent.Add(1)
		for _, cmd := range cmds {
			cmd.Args()
			cmd.SetErr(context.DeadlineExceeded)
		}
		return context.DeadlineExceeded
	}
}

func TestAClosedLockerSendsNothing(t *testing.T) {
	virtually(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		hook := &unanswered{}
		client.AddHook(hook)
		l, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, l, locking.Options{}, "order:1")
		hook.on.Store(true)
		if _, err := l.Acquire(t.Context(), []string{"order:2"}, locking.Options{}); !errors.Is(err, locking.ErrUnavailable) {
			t.Errorf("the attempt: %v, want ErrUnavailable", err)
		}
		if err := lease.Release(t.Context()); err == nil {
			t.Error("the release succeeded without an answer")
		}
		began := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v, want 5s at most", took)
		}
		sent := hook.sent.Load()
		time.Sleep(11 * time.Minute)
		if n := hook.sent.Load() - sent; n != 0 {
			t.Errorf("%d commands after Close", n)
		}
		if _, err := l.Acquire(t.Context(), []string{"order:2"}, locking.Options{}); !errors.Is(err, redis.ErrClosed) ||
			hook.sent.Load() != sent {
			t.Errorf("an attempt after Close: %v, %d commands; want ErrClosed and none", err, hook.sent.Load()-sent)
		}
	})
}

func TestAReleaseAfterCloseIsSentAgainBriefly(t *testing.T) {
	virtually(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		hook := &unanswered{}
		client.AddHook(hook)
		l, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, l, locking.Options{}, "order:1")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		hook.on.Store(true)
		began := time.Now()
		if err := lease.Release(t.Context()); err == nil || time.Since(began) > time.Second {
			t.Errorf("the release: %v after %v, want an error within 1s", err, time.Since(began))
		}
		sent := hook.sent.Load()
		time.Sleep(time.Minute)
		if n := hook.sent.Load() - sent; sent < 2 || n != 0 {
			t.Errorf("%d commands, and %d later; want some, and none later", sent, n)
		}
	})
}
