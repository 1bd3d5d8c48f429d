package locking_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestAKilledServerEndsTheLeaseInTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	began := time.Now()
	lease := acquire(t, l, locking.Options{TTL: locking.MinTTL}, "order:1")
	ctx := lease.Context(t.Context())
	server.Kill()
	loss := lost(t, lease)
	if loss.Reason != locking.LossExpired || time.Since(began) < 900*time.Millisecond {
		t.Errorf("after %v: %v; want an expiry after about 1s", time.Since(began), loss)
	}
	if loss.Err == nil || !strings.Contains(loss.Error(), `renew ["order:1"]`) {
		t.Errorf("the loss %q does not say what went wrong with the renewal", loss)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), locking.ErrLost) {
		t.Errorf("the cause of the context is %v, want ErrLost", context.Cause(ctx))
	}
	if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	if !lease.ShouldNotify() {
		t.Error("no notification, though the answer is unknown")
	}
}

func TestAnUnansweredReleaseGivesUp(t *testing.T) {
	t.Parallel()
	kill, pause := (*redistest.Server).Kill, (*redistest.Server).Pause
	restart := (*redistest.Server).Restart
	resume := func(s *redistest.Server, _ testing.TB) { s.Resume() }
	for name, tt := range map[string]struct {
		fail   func(s *redistest.Server)
		mend   func(s *redistest.Server, tb testing.TB)
		client func(*redis.Options)
		says   []string // one of them
	}{
		"killed":                 {kill, restart, deadlines, []string{"connection refused"}},
		"killed, default client": {kill, restart, func(*redis.Options) {}, []string{"connection refused"}},
		"paused":                 {pause, resume, deadlines, []string{"no answer in time", "i/o timeout"}},
		"paused, default client": {
			pause, resume, func(*redis.Options) {},
			[]string{"no answer in time", "i/o timeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := newSingle(t, server.Client(t, tt.client), locking.SingleOptions{})
			lease := acquire(t, l, locking.Options{}, "order:1")
			tt.fail(server)
			began := time.Now()
			err := lease.Release(t.Context())
			if took := time.Since(began); took > 8*time.Second { // 5 s, and some for a machine that is busy
				t.Errorf("the release took %v, want 5s at most", took)
			}
			isClear(t, err, `release ["order:1"]`)
			if err != nil && !slices.ContainsFunc(tt.says, func(s string) bool { return strings.Contains(err.Error(), s) }) {
				t.Errorf("error %q says none of %q", err, tt.says)
			}
			if !lease.ShouldNotify() {
				t.Error("no notification, though the answer is unknown")
			}
			tt.mend(server, t) // or Close would wait for the release
		})
	}
}

func TestAReleaseSurvivesAShortOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	b := newSingle(t, server.Client(t), locking.SingleOptions{})
	lease := acquire(t, a, locking.Options{}, "order:1")
	server.Pause()
	time.AfterFunc(300*time.Millisecond, server.Resume)
	release(t, lease)
	release(t, acquire(t, b, locking.Options{}, "order:1"))
}

func TestARenewalNoticesAForgottenLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	lease := acquire(t, l, locking.Options{}, "order:1")
	server.Kill()
	server.Restart(t)
	other := acquire(t, l, locking.Options{}, "order:1") // as it may be: the server has forgotten
	if err := lease.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: %v, want ErrLost", err)
	}
	if loss := lost(t, lease); loss.Reason != locking.LossTaken || len(loss.Keys) != 1 || loss.Keys[0] != "order:1" {
		t.Errorf("lost: %v, want order:1 because it is no longer this holder's", loss)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	release(t, other)
}

func TestALeaseOutlivesAShortOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	lease := acquire(t, l, locking.Options{TTL: 3 * time.Second}, "order:1")
	before := lease.ValidUntil()
	server.Pause()
	<-time.After(1200 * time.Millisecond) // the renewal after 1 s is under way
	server.Resume()
	for began := time.Now(); !lease.ValidUntil().After(before.Add(time.Second)); <-time.After(10 * time.Millisecond) {
		if err := lease.Err(); err != nil || time.Since(began) > patience {
			t.Fatalf("not renewed after %v: %v", time.Since(began), err)
		}
	}
	release(t, lease)
}

func TestALateReleaseFreesNoOtherLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := newSingle(t, server.Client(t, deadlines), locking.SingleOptions{})
	b := newSingle(t, server.Client(t), locking.SingleOptions{})
	lease := acquire(t, a, locking.Options{TTL: locking.MinTTL}, "order:1")
	server.Pause()
	if loss := lost(t, lease); loss.Reason != locking.LossExpired {
		t.Errorf("lost: %v, want because it could not be renewed", loss)
	}
	server.Resume()
	next := eventually(t, b, "order:1")
	if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	refused(t, a, "order:1")
	release(t, next)
}

func TestAnAnswerAfterTheValidityLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newSingle(t, server.Client(t), locking.SingleOptions{})
	release(t, acquire(t, l, locking.Options{}, "warm up the connection"))
	server.Pause()
	time.AfterFunc(locking.MinTTL+200*time.Millisecond, server.Resume)
	lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: locking.MinTTL})
	if lease != nil || err == nil || errors.Is(err, locking.ErrHeld) {
		t.Errorf("lease %v, error %v; want none, and an error that is not ErrHeld", lease, err)
	}
	release(t, acquire(t, l, locking.Options{}, "order:1"))
}

func TestAnAbsentServerIsNamedInTheError(t *testing.T) {
	t.Parallel()
	for name, mod := range map[string]func(*redis.Options){
		"default client": func(*redis.Options) {}, "client for locks": deadlines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			l := newSingle(t, server.Client(t, mod), locking.SingleOptions{})
			server.Kill()
			lease, err := l.Acquire(t.Context(), []string{"order:1", "order:2"}, locking.Options{})
			if lease != nil {
				t.Error("a lease of a server that is gone")
			}
			isClear(t, err, `acquire ["order:1" "order:2"]`, "connection refused")
			if !errors.Is(err, locking.ErrUnavailable) {
				t.Errorf("error %v, want ErrUnavailable", err)
			}
			server.Restart(t)
			release(t, acquire(t, l, locking.Options{}, "order:1", "order:2"))
		})
	}
}

func TestASubscriptionLastsAsLongAsAnyAskedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	l := newSingle(t, client, locking.SingleOptions{})
	lease := acquire(t, l, locking.Options{}, "order:1")
	for _, d := range []time.Duration{time.Second, time.Hour, time.Minute} {
		if _, err := l.Acquire(t.Context(), []string{"order:1"},
			locking.Options{Notify: d}); !errors.Is(err, locking.ErrHeld) {
			t.Fatalf("acquire: %v, want ErrHeld", err)
		}
	}
	left, err := client.PTTL(t.Context(), "railtoken:lock:{order:1}:notify").Result()
	if err != nil || left < 59*time.Minute || left > time.Hour {
		t.Errorf("the subscription is kept for another %v (%v), want the hour that one has asked for", left, err)
	}
	release(t, lease)
}

func TestAnAttemptEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, mod := range map[string]func(*redis.Options){
		"default client": func(*redis.Options) {}, "client for locks": deadlines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := newSingle(t, server.Client(t, mod, func(o *redis.Options) { o.ReadTimeout = 10 * time.Second }),
				locking.SingleOptions{})
			release(t, acquire(t, l, locking.Options{}, "warm up the connection"))
			server.Pause()
			ctx, cancel := context.WithCancel(t.Context())
			var cancelled time.Time
			time.AfterFunc(100*time.Millisecond, func() {
				cancelled = time.Now()
				cancel()
			})
			lease, err := l.Acquire(ctx, []string{"order:1"}, locking.Options{})
			if took := time.Since(cancelled); lease != nil || !errors.Is(err, context.Canceled) || took > promptly {
				t.Errorf("lease %v, error %v %v after it was cancelled; want that error at once", lease, err, took)
			}
			server.Resume()
			release(t, eventually(t, l, "order:1")) // what was granted late is given back
		})
	}
}
