package locking

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

func TestASuspensionIsNoticedWithinASecond(t *testing.T) {
	hang := func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for name, tt := range map[string]struct {
		renew func(ctx context.Context, n int) error
		at    time.Duration
	}{
		"at rest":                      {nil, 5500 * time.Millisecond},
		"at the very start":            {nil, 0},
		"while a renewal is under way": {hang, 12300 * time.Millisecond},
		"when a renewal was repeated":  {hang, 22 * time.Second},
		"when MaxHold is near":         {nil, 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGrant{renew: tt.renew}
			opts := Options{TTL: 30 * time.Second, MaxHold: 60 * time.Second}
			bubble(t, g, opts, func(t *testing.T, l *Lease, wall *atomic.Int64) {
				g.at(tt.at)
				if l.Err() != nil {
					t.Fatalf("the lease ended before the suspension: %v", l.Err())
				}
				n := len(g.renewals())
				wall.Add(int64(time.Minute))
				lost, at := lostAt(t, l, g)
				if at > tt.at+time.Second {
					t.Errorf("resumed at %v, the loss was seen at %v", tt.at, at)
				}
				if lost.Reason == LossTaken {
					t.Errorf("lost: %v, want because of the time", lost)
				}
				if got := g.renewals(); len(got) != n {
					t.Errorf("renewals at %v, of which the last is after the end", got)
				}
			})
		})
	}
}

func TestASuspensionShowsAtOnce(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, l *Lease) error{
		"Err":     func(_ *testing.T, l *Lease) error { return l.Err() },
		"Context": func(t *testing.T, l *Lease) error { return context.Cause(l.Context(t.Context())) },
		"Renew":   func(t *testing.T, l *Lease) error { return l.Renew(t.Context()) },
		"Release": func(t *testing.T, l *Lease) error { return l.Release(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGrant{}
			bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, wall *atomic.Int64) {
				g.at(5500 * time.Millisecond)
				wall.Add(int64(time.Minute))
				if err := ask(t, l); !errors.Is(err, ErrLost) {
					t.Errorf("%s says %v, want ErrLost", name, err)
				}
				if n := len(g.renewals()); n != 0 {
					t.Errorf("%d renewals of a lease whose time is over", n)
				}
			})
		})
	}
}

func TestAShortSuspensionRenewsWithinASecond(t *testing.T) {
	g := &fakeGrant{}
	bubble(t, g, Options{TTL: 30 * time.Second}, func(t *testing.T, l *Lease, wall *atomic.Int64) {
		g.at(5500 * time.Millisecond)
		wall.Add(int64(20 * time.Second))
		g.at(6500 * time.Millisecond)
		if got := g.renewals(); len(got) != 1 {
			t.Errorf("renewals at %v, want one within 1s of 5.5s", got)
		}
		if err := l.Err(); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
	})
}

// TestARenewalIsNeverForNoTime is about a machine that is suspended between any two looks at the clock: a renewal for a
// time that is not positive would delete the lock.
func TestARenewalIsNeverForNoTime(t *testing.T) {
	t.Parallel()
	for suspended := 2; suspended <= 6; suspended++ {
		g, looks := &fakeGrant{}, 0
		began := (&suspensionDetector{read: wallClock(func() time.Time {
			looks++
			if looks < suspended {
				return time.Now().Round(0)
			}
			return time.Now().Round(0).Add(time.Hour)
		})}).now()
		l, err := newLease(t.Context(), g, []string{"order"}, Options{TTL: 20 * time.Second, MaxHold: time.Minute}, began)
		if suspended == 2 {
			if !errors.Is(err, ErrLost) {
				t.Errorf("suspended during the acquire: %v, want ErrLost", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = l.Renew(t.Context())
		}
		for _, ttl := range g.ttls {
			if ttl <= 0 {
				t.Errorf("suspended before look %d: a renewal for %v", suspended, ttl)
			}
		}
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("suspended before look %d: release: %v, want ErrLost", suspended, err)
		}
	}
}

func TestASlowAcquireGivesNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGrant{began: time.Now()}
		opts := Options{TTL: 10 * time.Second, MaxHold: time.Minute}
		began := (&suspensionDetector{}).now()
		time.Sleep(quorum.Validity(opts.TTL) - 1)
		lease, err := newLease(t.Context(), g, []string{"order"}, opts, began)
		if err != nil {
			t.Fatalf("no lease one moment before its end: %v", err)
		}
		_ = lease.Release(t.Context())
		time.Sleep(time.Nanosecond)
		if lease, err := newLease(t.Context(), g, []string{"order"}, opts, began); lease != nil || !errors.Is(err, ErrLost) {
			t.Errorf("lease %v, error %v, want no lease and ErrLost", lease, err)
		}
		if got := g.renewals(); len(got) != 1 {
			t.Errorf("renewals at %v, want none of the grant that has expired", got)
		}
	})
}

func TestASlowAcquireIsRenewedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, took := range []time.Duration{5 * time.Second, 8 * time.Second} {
			g := &fakeGrant{began: time.Now()}
			began := (&suspensionDetector{}).now()
			time.Sleep(took)
			opts := Options{TTL: 10 * time.Second, MaxHold: time.Minute}
			lease, err := newLease(t.Context(), g, []string{"order"}, opts, began)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := g.renewals(); !slices.Equal(got, []time.Duration{took}) {
				t.Errorf("renewals at %v, want one at once, at %v", got, took)
			}
			_ = lease.Release(t.Context())
		}
	})
}

func TestALateLeaseIsRenewedBeforeItsHolderBegins(t *testing.T) {
	t.Parallel()
	const usual, long, ms = 9 * time.Second, 30 * time.Second, time.Millisecond
	end, late := quorum.Validity(usual), quorum.Validity(usual)-usual/3+1 // late: less than a third of the TTL is left
	for name, tt := range map[string]struct {
		ttl       time.Duration               // usual when 0
		took      time.Duration               // by the acquisition
		renew     func(context.Context) error // the first renewal
		impatient bool                        // the caller's context ends after 8 s
		begins    time.Duration               // when newLease returns
		until     time.Duration               // when the lease ends without another renewal; 0 for no lease
		reason    LossReason                  // why there is none
	}{
		"a third is left": {took: late - 1, renew: hangs, begins: late - 1, until: end},
		"less is left":    {took: late, renew: answers(900*ms, nil), begins: late + 900*ms, until: late + end},
		"the renewal fails": {
			took: 8000 * ms, renew: answers(100*ms, errNoAnswer), begins: 8100 * ms, reason: LossExpired,
		},
		"the renewal is late": {took: 8000 * ms, renew: answers(5000*ms, nil), begins: 13_000 * ms, reason: LossExpired},
		"the renewal hangs":   {took: 8000 * ms, renew: hangs, begins: end, reason: LossExpired},
		"the renewal hangs, of a long TTL": {
			ttl: long, took: 20_000 * ms, renew: hangs, begins: 25_000 * ms, reason: LossExpired,
		},
		"the caller gives up": {took: 7000 * ms, renew: hangs, impatient: true, begins: 8000 * ms, reason: LossExpired},
		"the key is taken": {
			took: 8000 * ms, renew: answers(0, &LostError{Reason: LossTaken}), begins: 8000 * ms, reason: LossTaken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &fakeGrant{began: time.Now(), renew: func(ctx context.Context, n int) error {
					if n == 1 {
						return tt.renew(ctx)
					}
					return hangs(ctx)
				}}
				began, ctx := (&suspensionDetector{}).now(), t.Context()
				if tt.impatient {
					bounded, cancel := context.WithTimeout(ctx, 8000*ms)
					defer cancel()
					ctx = bounded
				}
				time.Sleep(tt.took)
				lease, err := newLease(ctx, g, []string{"order"}, Options{TTL: cmp.Or(tt.ttl, usual), MaxHold: time.Hour}, began)
				if at := time.Since(g.began); at != tt.begins {
					t.Errorf("newLease returns after %v, want %v", at, tt.begins)
				}
				if tt.until == 0 {
					if loss, ok := errors.AsType[*LostError](err); lease != nil || !ok || loss.Reason != tt.reason {
						t.Errorf("lease %v, error %v, want no lease and %q", lease, err, tt.reason)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, at := lostAt(t, lease, g); at != tt.until {
					t.Errorf("the lease lasts until %v, want %v", at, tt.until)
				}
				_ = lease.Release(t.Context())
			})
		})
	}
}

// answers returns a renewal that is answered after some time, whatever its context does.
func answers(after time.Duration, err error) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(after)
		return err
	}
}

// hangs is a renewal that is never answered.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
