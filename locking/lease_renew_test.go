package locking

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

func TestRenewPostponesTheNextRenewal(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		g.at(7 * time.Second)
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.at(18 * time.Second)
		if got, want := g.renewals(), []time.Duration{7 * time.Second, 17 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("renewals at %v, want %v", got, want)
		}
	})
}

func TestARenewalThatEndsTooLateExtendsNothing(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, wall *atomic.Int64) {
		g.renew = func(context.Context, int) error { // the machine is suspended while the answer is on its way
			wall.Add(int64(30 * time.Second))
			return nil
		}
		if err := l.Renew(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("error %v, want ErrLost", err)
		}
	})
}

func TestAFailedRenewLeavesTheLease(t *testing.T) {
	g := &fakeGrant{renew: func(context.Context, int) error { return errNoAnswer }}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		g.at(7 * time.Second)
		if err := l.Renew(t.Context()); !errors.Is(err, errNoAnswer) || errors.Is(err, ErrLost) {
			t.Errorf("renew: %v, want %v and no loss", err, errNoAnswer)
		}
		if err := l.Err(); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
		if _, at := lostAt(t, l, g); at != quorum.Validity(30*time.Second) {
			t.Errorf("lost after %v, want at its old end: %v", at, quorum.Validity(30*time.Second))
		}
	})
}

// TestRenewStartsNoBackgroundRenewal is about a connection that hangs while another works.
func TestRenewStartsNoBackgroundRenewal(t *testing.T) {
	for name, own := range map[string]error{"that succeed": nil, "that fail": errNoAnswer} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGrant{}
			g.renew = func(_ context.Context, n int) error {
				if n == 1 {
					<-g.hang // as a client does that does not look at its context
				}
				return own
			}
			bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
				g.at(12 * time.Second) // the renewal of 10 s hangs
				if err := l.Renew(t.Context()); !errors.Is(err, own) {
					t.Fatalf("renew: %v, want %v", err, own)
				}
				g.at(25 * time.Second)
				if n := len(g.renewals()); n != 2 {
					t.Errorf("%d renewals, want the one that hangs and the holder's own", n)
				}
				close(g.hang)
				synctest.Wait()
				if n := len(g.renewals()); own == nil && n != 3 {
					t.Errorf("%d renewals, want the one that is overdue at once", n)
				}
			})
		})
	}
}

func TestLeasesTakenTogetherAreNotRenewedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leases, ttl = 2000, 30 * time.Second
		grants := make([]*fakeGrant, leases)
		began := time.Now()
		for i := range grants {
			grants[i] = &fakeGrant{began: began}
			keys, opts, err := prepare([]string{"order:1"}, Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := newLease(t.Context(), grants[i], keys, opts, (&suspensionDetector{}).now())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
		}
		time.Sleep(61 * time.Second) // virtual
		synctest.Wait()
		due := map[time.Duration]int{} // by the tenth of a second
		for _, g := range grants {
			before, least := time.Duration(0), ttl/12
			for _, at := range g.renewals() {
				if pause := at - before; pause < least || pause > ttl/3 {
					t.Fatalf("a renewal %v after the one before, want %v to %v", pause, least, ttl/3)
				}
				before, least = at, ttl/4
				due[at.Truncate(100*time.Millisecond)]++
			}
		}
		for at, n := range due {
			if n > leases/20 {
				t.Errorf("%d of %d leases were renewed within 100 ms after %v", n, leases, at)
			}
		}
	})
}

func TestTheHoldersFailedRenewalsPutNoOtherOff(t *testing.T) {
	g := &fakeGrant{renew: func(ctx context.Context, _ int) error { return ctx.Err() }}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 40 {
			g.at(time.Duration(i+1) * time.Second)
			_ = l.Renew(over)
		}
		if err := l.Err(); err != nil {
			t.Errorf("lost while its backend is well: %v", err)
		}
	})
}

func TestTheEndOfALeaseStopsItsRenewal(t *testing.T) {
	for name, end := range map[string]func(l *Lease, g *fakeGrant) *Lease{
		"lost": func(l *Lease, _ *fakeGrant) *Lease {
			<-l.Done()
			return l
		},
		"handed off": func(l *Lease, g *fakeGrant) *Lease {
			g.at(11 * time.Second)
			return l.next(nil, Options{TTL: 30 * time.Second, MaxHold: time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGrant{}
			g.renew = func(ctx context.Context, n int) error {
				if n > 1 && name == "handed off" {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
			bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, _ *atomic.Int64) {
				next := end(l, g)
				g.at(10 * time.Minute)
				g.mu.Lock()
				if g.running > 0 {
					t.Errorf("%d renewals go on", g.running)
				}
				g.mu.Unlock()
				_ = next.Release(t.Context())
			})
		})
	}
}
