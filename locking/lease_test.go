package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/quorum"
)

// fakeGrant is a backend that does as it is told, and notes when it was asked to renew.
type fakeGrant struct {
	renew   func(ctx context.Context, n int) error // the n-th renewal, from 1; nil for success
	release error
	notify  bool

	hang     chan struct{} // for renew to wait for
	began    time.Time
	mu       sync.Mutex
	sent     []time.Duration // when each renewal was sent, since the grant was made
	ttls     []time.Duration // for how long
	running  int             // renewals under way
	most     int             // the most of them at a time
	releases []context.Context
	early    bool // released while a renewal was under way
	ended    bool // released with a context that had ended
}

var errNoAnswer = errors.New("no answer")

func (g *fakeGrant) Fence(_ context.Context, i int) (int64, error) { return int64(i) + 1, nil }

func (g *fakeGrant) Renew(ctx context.Context, ttl time.Duration) error {
	g.mu.Lock()
	g.sent = append(g.sent, time.Since(g.began))
	g.ttls = append(g.ttls, ttl)
	n := len(g.sent)
	g.running++
	g.most = max(g.most, g.running)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.running--
		g.mu.Unlock()
	}()
	if g.renew == nil {
		return nil
	}
	return g.renew(ctx, n)
}

func (g *fakeGrant) Release(ctx context.Context) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releases = append(g.releases, ctx)
	g.early = g.early || g.running > 0
	g.ended = g.ended || ctx.Err() != nil
	return g.notify, g.release
}

// renewals returns when the renewals were sent so far.
func (g *fakeGrant) renewals() []time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent)
}

// wallClock reads the monotonic clock of this machine and another wall clock.
func wallClock(wall func() time.Time) func() (now, w time.Time) {
	return func() (now, w time.Time) { return time.Now(), wall() }
}

// bubble runs a test of a lease that does not renew earlier than it must in virtual time. The lease's wall clock is
// ahead of the bubble's by what wall holds.
func bubble(t *testing.T, g *fakeGrant, opts Options, test func(t *testing.T, l *Lease, wall *atomic.Int64)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wall atomic.Int64
		began := (&suspensionDetector{read: wallClock(func() time.Time {
			return time.Now().Round(0).Add(time.Duration(wall.Load()))
		})}).now()
		g.began, g.hang = time.Now(), make(chan struct{})
		keys, opts, err := prepare([]string{"order:2", "order:1"}, opts)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := newLease(t.Context(), g, keys, opts, began)
		if err != nil {
			t.Fatal(err)
		}
		lease.mu.Lock()
		lease.term = leasing.NewTerm(opts.TTL, opts.MaxHold, 0)
		lease.mu.Unlock()
		test(t, lease, &wall)
		_ = lease.Release(t.Context())
	})
}

// at waits until so much time has passed since the lease began and everything that was due then is done.
func (g *fakeGrant) at(d time.Duration) {
	time.Sleep(time.Until(g.began.Add(d)))
	synctest.Wait()
}

// lostAt waits for the end of the lease and returns why and when it was.
func lostAt(t *testing.T, l *Lease, g *fakeGrant) (*LostError, time.Duration) {
	t.Helper()
	<-l.Done()
	at := time.Since(g.began)
	lost, ok := errors.AsType[*LostError](l.Err())
	if !ok || !errors.Is(l.Err(), ErrLost) {
		t.Fatalf("the lease ended by %v, want a LostError that matches ErrLost", l.Err())
	}
	return lost, at
}

func TestALeaseRenewsEachThirdOfItsTTL(t *testing.T) {
	g := &fakeGrant{renew: func(context.Context, int) error {
		time.Sleep(2 * time.Second) // a slow answer does not put the next one off
		return nil
	}}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		g.at(65 * time.Second)
		want := []time.Duration{
			10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second,
			50 * time.Second, 60 * time.Second,
		}
		if got := g.renewals(); !slices.Equal(got, want) {
			t.Errorf("renewals at %v, want %v", got, want)
		}
		if l.Err() != nil {
			t.Errorf("the lease ended: %v", l.Err())
		}
		if got, want := time.Until(l.ValidUntil()), 25*time.Second-302*time.Millisecond; got != want {
			t.Errorf("valid for another %v, want %v", got, want)
		}
	})
}

func TestAHangingRenewalDoesNotHideTheEnd(t *testing.T) {
	g := &fakeGrant{renew: func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		lost, at := lostAt(t, l, g)
		if at != quorum.Validity(30*time.Second) || lost.Reason != LossExpired {
			t.Errorf("lost after %v: %v; want after %v", at, lost, quorum.Validity(30*time.Second))
		}
		if !errors.Is(lost, context.DeadlineExceeded) {
			t.Errorf("the loss %v does not tell of the renewal that had no answer", lost)
		}
		if n := len(g.renewals()); n < 2 {
			t.Errorf("%d renewals: one that hangs must leave time for another", n)
		}
	})
}

func TestANeverEndingRenewalDoesNotHideTheEnd(t *testing.T) {
	g := &fakeGrant{}
	g.renew = func(context.Context, int) error { <-g.hang; return nil }
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		defer close(g.hang)
		lost, at := lostAt(t, l, g)
		if at != quorum.Validity(30*time.Second) || lost.Reason != LossExpired {
			t.Errorf("lost after %v: %v; want after %v", at, lost, quorum.Validity(30*time.Second))
		}
		before := time.Now()
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
		if took := time.Since(before); took > releaseTimeout {
			t.Errorf("the release took %v, want at most %v", took, releaseTimeout)
		}
		if len(g.releases) != 1 {
			t.Errorf("released %d times, want once: the keys would stay locked", len(g.releases))
		}
	})
}

func TestAFailedRenewalIsTriedAgainInTime(t *testing.T) {
	g := &fakeGrant{renew: func(_ context.Context, n int) error {
		if n <= 3 {
			return errNoAnswer
		}
		return nil
	}}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		g.at(25 * time.Second)
		want := []time.Duration{
			10 * time.Second, 11500 * time.Millisecond, 13 * time.Second, 14500 * time.Millisecond,
			24500 * time.Millisecond,
		}
		if got := g.renewals(); !slices.Equal(got, want) {
			t.Errorf("renewals at %v, want %v", got, want)
		}
		if l.Err() != nil {
			t.Errorf("the lease ended: %v", l.Err())
		}
	})
}

func TestALossCarriesTheLastError(t *testing.T) {
	last := errors.New("the last one")
	g := &fakeGrant{}
	g.renew = func(context.Context, int) error {
		if time.Since(g.began) > 29*time.Second {
			return last
		}
		return errNoAnswer
	}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		ctx := l.Context(t.Context())
		lost, at := lostAt(t, l, g)
		if at != quorum.Validity(30*time.Second) || lost.Reason != LossExpired || !errors.Is(lost, last) ||
			errors.Is(lost, errNoAnswer) {
			t.Errorf("lost after %v: %v; want after %v, with the last error alone", at, lost, quorum.Validity(30*time.Second))
		}
		if !slices.Equal(lost.Keys, l.Keys()) {
			t.Errorf("lost %q, want every key of the lease: %q", lost.Keys, l.Keys())
		}
		if cause := context.Cause(ctx); !errors.Is(cause, lost) || !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("the context ended by %v with cause %v, want %v", ctx.Err(), cause, lost)
		}
		if err := l.Release(t.Context()); !errors.Is(err, lost) {
			t.Errorf("release: %v, want the loss", err)
		}
	})
}

func TestALossForgetsErrorsBeforeAGoodRenewal(t *testing.T) {
	g := &fakeGrant{renew: func(_ context.Context, n int) error {
		if n == 1 {
			return errNoAnswer
		}
		return nil
	}}
	bubble(t, g, Options{TTL: 10 * time.Second, MaxHold: 20 * time.Second},
		func(t *testing.T, l *Lease, _ *atomic.Int64) {
			if lost, _ := lostAt(t, l, g); lost.Err != nil {
				t.Errorf("%v tells of an error that was made good", lost)
			}
		})
}

func TestATakenKeyEndsTheLeaseAtOnce(t *testing.T) {
	taken := &LostError{Keys: []string{"order:2"}, Reason: LossTaken}
	g := &fakeGrant{
		renew:   func(context.Context, int) error { return taken },
		release: &LostError{Keys: []string{"order:2"}, Reason: LossTaken},
	}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		before := l.Context(t.Context())
		lost, at := lostAt(t, l, g)
		if lost != taken || at != 10*time.Second {
			t.Errorf("after %v lost by %v, want by what the renewal at 10s said: %v", at, lost, taken)
		}
		late := l.Context(t.Context())
		for name, ctx := range map[string]context.Context{"before": before, "after": late} {
			if !errors.Is(context.Cause(ctx), taken) {
				t.Errorf("the cause of a context made %s the loss is %v, want %v", name, context.Cause(ctx), taken)
			}
		}
		if err := l.Renew(t.Context()); !errors.Is(err, taken) {
			t.Errorf("renew: %v, want %v", err, taken)
		}
		if err := l.Release(t.Context()); !errors.Is(err, taken) {
			t.Errorf("release: %v, want %v", err, taken)
		}
		if l.ShouldNotify() {
			t.Error("contended, though the grant knows that there is no subscription")
		}
		if n := len(g.renewals()); n != 1 {
			t.Errorf("%d renewals, want none after the loss", n)
		}
	})
}

func TestMaxHoldEndsTheLeaseAndItsRenewals(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 9 * time.Second, MaxHold: 25 * time.Second},
		func(t *testing.T, l *Lease, _ *atomic.Int64) {
			lost, at := lostAt(t, l, g)
			if lost.Reason != LossMaxHold || at > 25*time.Second ||
				at < 25*time.Second-(9*time.Second-quorum.Validity(9*time.Second)) {
				t.Errorf("lost after %v: %v; want by MaxHold after 25s", at, lost)
			}
			g.at(100 * time.Second)
			want := []time.Duration{
				3 * time.Second, 6 * time.Second, 9 * time.Second, 12 * time.Second, 15 * time.Second,
				18 * time.Second,
			}
			if got := g.renewals(); !slices.Equal(got, want) {
				t.Errorf("renewals at %v, want %v", got, want)
			}
			if last := g.ttls[len(g.ttls)-1]; last != 7*time.Second {
				t.Errorf("the last renewal was for %v, want no more than MaxHold allows: 7s", last)
			}
		})
}

func TestRenewDoesNotExceedMaxHold(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 10 * time.Second, MaxHold: 10 * time.Second},
		func(t *testing.T, l *Lease, _ *atomic.Int64) {
			g.at(9 * time.Second)
			if err := l.Renew(t.Context()); err != nil {
				t.Errorf("renew: %v", err)
			}
			if lost, at := lostAt(t, l, g); lost.Reason != LossMaxHold || at != quorum.Validity(10*time.Second) {
				t.Errorf("lost after %v: %v; want by MaxHold after %v", at, lost, quorum.Validity(10*time.Second))
			}
			if n := len(g.renewals()); n != 0 {
				t.Errorf("%d renewals, want none", n)
			}
		})
}

func TestALeaseHasATokenForEachKey(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		for key, want := range map[string]int64{"order:1": 1, "order:2": 2} {
			if got, err := l.FenceOf(t.Context(), key); err != nil || got != want {
				t.Errorf("the token of %q is %d, %v; want %d", key, got, err, want)
			}
		}
		if got, err := l.Fence(t.Context()); err != nil || got != 1 {
			t.Errorf("Fence() = %d, %v; want the first key's: 1", got, err)
		}
		if _, err := l.FenceOf(t.Context(), "order:3"); err == nil {
			t.Error("a token for a key that the lease is not for")
		}
		l.Keys()[0] = "changed by the caller"
		if got := l.Keys(); !slices.Equal(got, []string{"order:1", "order:2"}) {
			t.Errorf("keys %q, want them sorted and the lease's own", got)
		}
	})
}

func TestACommitIsRemembered(t *testing.T) {
	g := &fakeGrant{renew: func(context.Context, int) error { return &LostError{Reason: LossTaken} }}
	bubble(t, g, Options{}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		if l.Committed() {
			t.Error("committed from the start")
		}
		l.MarkCommitted()
		lostAt(t, l, g)
		if !l.Committed() {
			t.Error("the loss has undone the commit")
		}
	})
}
