package locking

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestReleaseStopsAndAwaitsARenewal(t *testing.T) {
	ended := false
	g := &fakeGrant{renew: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		time.Sleep(200 * time.Millisecond)
		ended = true
		return context.Cause(ctx)
	}}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		g.at(11 * time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		if at := time.Since(g.began); at != 11200*time.Millisecond {
			t.Errorf("released at %v, want when the renewal had ended: 11.2s", at)
		}
		if !ended || g.early {
			t.Error("the grant was released while a renewal was under way")
		}
		if err := l.Err(); !errors.Is(err, ErrReleased) {
			t.Errorf("Err is %v, want ErrReleased", err)
		}
		g.at(100 * time.Second)
		if n := len(g.renewals()); n != 1 {
			t.Errorf("%d renewals, want none after the release", n)
		}
	})
}

func TestReleaseEndsItsContexts(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		parent, cancel := context.WithCancelCause(t.Context())
		ctx, own := l.Context(t.Context()), l.Context(parent)
		stopped := errors.New("the caller stopped")
		cancel(stopped)
		if ctx.Err() != nil || !errors.Is(context.Cause(own), stopped) {
			t.Errorf("causes %v and %v, want none and the parent's", context.Cause(ctx), context.Cause(own))
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Done():
		default:
			t.Error("Done is open after the release")
		}
		if cause := context.Cause(ctx); !errors.Is(cause, ErrReleased) {
			t.Errorf("the cause after the release is %v, want ErrReleased", cause)
		}
		if cause := context.Cause(l.Context(t.Context())); !errors.Is(cause, ErrReleased) {
			t.Errorf("the cause of a context made after the release is %v, want ErrReleased", cause)
		}
	})
}

func TestReleaseAsksTheServerOnce(t *testing.T) {
	g := &fakeGrant{release: errNoAnswer}
	bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := l.Release(t.Context()); !errors.Is(err, errNoAnswer) {
					t.Errorf("release: %v, want what the first said: %v", err, errNoAnswer)
				}
			})
		}
		wg.Wait()
		if n := len(g.releases); n != 1 {
			t.Errorf("%d releases, want one", n)
		}
	})
}

func TestReleaseOutlivesItsContextWithinABound(t *testing.T) {
	type key struct{}
	g := &fakeGrant{}
	bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		cancel()
		before := time.Now()
		_ = l.Release(ctx)
		got := g.releases[0]
		if deadline, ok := got.Deadline(); !ok || deadline.Sub(before) > releaseTimeout {
			t.Errorf("the release may take until %v (%v), want %v at most", deadline, ok, releaseTimeout)
		}
		if g.ended {
			t.Error("the release ended with the context of its caller")
		}
		if got.Value(key{}) != "trace" {
			t.Error("the release has lost the values of its context")
		}
	})
	if err := context.Cause(g.releases[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("the context of the release was left open: %v", err)
	}
}

func TestContendedIsTrueWhenItCannotBeKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		notify bool
		err    error
		want   bool
	}{
		"not asked":          {false, nil, false},
		"asked":              {true, nil, true},
		"the server is gone": {false, errNoAnswer, true},
		"lost, not asked":    {false, &LostError{Reason: LossTaken}, false},
		"lost, asked":        {true, &LostError{Reason: LossTaken}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGrant{notify: tt.notify, release: tt.err}
			bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
				if l.ShouldNotify() {
					t.Error("contended before the release")
				}
				if err := l.Release(t.Context()); !errors.Is(err, tt.err) {
					t.Errorf("release: %v, want %v", err, tt.err)
				}
				if got := l.ShouldNotify(); got != tt.want {
					t.Errorf("contended %v, want %v", got, tt.want)
				}
			})
		})
	}
}
