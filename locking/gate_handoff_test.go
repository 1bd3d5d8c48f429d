package locking_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
)

func TestAHandOffTakesTheNextTokenWithoutTraffic(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		keys := []string{"order:1", "order:2"}
		inner.tokens["order:2"] = 1000
		first := acquire(t, gate, locking.Options{Label: "first"}, keys...)
		before := tokenOf(t, first)
		ctx := first.Context(t.Context())
		next := inLine(t.Context(), gate, locking.Options{Label: "second"}, "order:2", "order:1", "order:2")
		waits(t, next)
		calls := inner.calls()
		release(t, first)
		second := got(t, next)
		if n := inner.calls() - calls; n != 0 {
			t.Errorf("%d calls for handing off, want none", n)
		}
		if token := tokenOf(t, second); token != before+1 {
			t.Errorf("token %d after %d, want the next one", token, before)
		}
		if token, err := second.FenceOf(t.Context(), "order:2"); token != 1002 || err != nil {
			t.Errorf("token of the other key %d, %v, want 1002", token, err)
		}
		if !slices.Equal(second.Keys(), keys) {
			t.Errorf("keys %q, want %q", second.Keys(), keys)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrReleased) ||
			!errors.Is(first.Err(), locking.ErrReleased) {
			t.Errorf("the old lease ended by %v and %v, want ErrReleased", cause, first.Err())
		}
		select {
		case <-first.Done():
		default:
			t.Error("Done of the old lease is open")
		}
		if err := first.Renew(t.Context()); !errors.Is(err, locking.ErrReleased) {
			t.Errorf("renewal of the old lease: %v, want ErrReleased", err)
		}
		if err := first.Release(t.Context()); err != nil || second.Err() != nil || !inner.holds("order:1") {
			t.Errorf("a second release of the old lease: %v; the new lease: %v", err, second.Err())
		}
		if held := refused(t, gate, "order:2"); held.Label != "second" {
			t.Errorf("held by %q, want by the second", held.Label)
		}
		release(t, second)
		if inner.holds("order:1") || inner.holds("order:2") {
			t.Error("the keys are not released")
		}
	})
}

func TestAHandedOffLeaseLivesItsOwnLife(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		opts := locking.Options{TTL: 30 * time.Second, MaxHold: time.Minute}
		first := acquire(t, gate, opts, "order")
		next := inLine(t.Context(), gate, opts, "order")
		time.Sleep(35 * time.Second)
		release(t, first)
		second := got(t, next)
		began, renewals := time.Now(), inner.renewed()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if err := second.Err(); err != nil || !inner.holds("order") {
			t.Errorf("59 s after it was handed off: %v, held: %v; want a good lease", err, inner.holds("order"))
		}
		if n := inner.renewed() - renewals; n < 3 {
			t.Errorf("%d renewals in 59 s with a TTL of 30 s", n)
		}
		if lost := lost(t, second); lost.Reason != locking.LossMaxHold || time.Since(began) > time.Minute {
			t.Errorf("lost after %v: %v, want after MaxHold", time.Since(began), lost)
		}
	})
}

// A renewal of the old holder that is under way does not decide over the new one.
func TestAHandOffKeepsTheEndOfTheLease(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		first := acquire(t, gate, locking.Options{TTL: 30 * time.Second}, "order")
		next := inLine(t.Context(), gate, locking.Options{TTL: 30 * time.Second}, "order")
		inner.set(func() { inner.failRenew = errors.New("no answer") })
		time.Sleep(15 * time.Second)
		release(t, first)
		second := got(t, next)
		if left := time.Until(second.ValidUntil()); left > 15*time.Second || left < 14*time.Second {
			t.Errorf("%v left, want no more than the servers have promised: about 14.7 s", left)
		}
		if lost(t, second).Reason != locking.LossExpired {
			t.Error("want a loss because it could not be renewed")
		}
	})
}

func TestOtherLeasesGoBackToTheServers(t *testing.T) {
	t.Parallel()
	base := locking.Options{TTL: 30 * time.Second}
	for name, tt := range map[string]struct {
		first, second locking.Options
		keys          []string
		after         time.Duration
		deaf          bool
		handedOff     bool
	}{
		"the same": {first: base, second: base, handedOff: true},
		"another label": {
			first:  base,
			second: locking.Options{TTL: base.TTL, Label: "b", Notify: time.Minute}, handedOff: true,
		},
		"the default TTL": {first: base, second: locking.Options{}, handedOff: true},
		"a longer TTL":    {first: base, second: locking.Options{TTL: 31 * time.Second}},
		"a shorter TTL":   {first: base, second: locking.Options{TTL: 29 * time.Second}},
		"more keys":       {first: base, second: base, keys: []string{"order", "other"}},
		"a third of the TTL": {
			first: base, second: base, after: 19600 * time.Millisecond, deaf: true,
			handedOff: true,
		},
		"less than a third of it": {first: base, second: base, after: 19800 * time.Millisecond, deaf: true},
		"long held but renewed":   {first: base, second: base, after: 10 * time.Minute, handedOff: true},
		"the end of MaxHold": {
			first: locking.Options{TTL: base.TTL, MaxHold: base.TTL}, second: base,
			after: 19800 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				first := acquire(t, gate, tt.first, "order")
				before := tokenOf(t, first)
				keys := tt.keys
				if keys == nil {
					keys = []string{"order"}
				}
				next := inLine(t.Context(), gate, tt.second, keys...)
				if tt.deaf {
					inner.set(func() { inner.failRenew = errors.New("no answer") })
				}
				time.Sleep(tt.after)
				calls := inner.calls()
				_ = first.Release(t.Context())
				second := got(t, next)
				if tokenOf(t, second) <= before {
					t.Errorf("token %d after %d", tokenOf(t, second), before)
				}
				if n := inner.calls() - calls; (n == 0) != tt.handedOff {
					t.Errorf("%d calls, handed off: %v", n, tt.handedOff)
				}
			})
		})
	}
}

// yield lets other goroutines go first at random, so that on one processor, too, either of two may be the first.
func yield() {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
}

func TestGivingUpDuringAHandOffLosesNothing(t *testing.T) {
	virtually(t, func(t *testing.T) { // where it is known that the waiters stand in line
		const rounds = 2000
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		given := 0
		for i := range rounds {
			holder := acquire(t, gate, locking.Options{}, "order")
			ctx, cancel := context.WithCancel(t.Context())
			leaving := inLine(ctx, gate, locking.Options{}, "order")
			staying := inLine(t.Context(), gate, locking.Options{}, "order")
			var wg sync.WaitGroup
			wg.Go(func() {
				yield()
				for range rand.IntN(200) {
					_ = ctx.Err()
				}
				cancel()
			})
			wg.Go(func() {
				yield()
				release(t, holder)
			})
			wg.Wait()
			for _, c := range []<-chan outcome{leaving, staying} {
				switch o := <-c; {
				case o.err == nil:
					release(t, o.lease)
				case c == staying || !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, locking.ErrHeld):
					t.Fatalf("wait: %v", o.err)
				default:
					given++
				}
			}
			if inner.holds("order") {
				t.Fatalf("round %d: the servers still have the lock", i)
			}
		}
		if given == 0 || given == rounds {
			t.Errorf("%d of %d gave up: the moment was never hit", given, rounds)
		}
	})
}

func TestALossLetsTheNextWaiterGoOn(t *testing.T) {
	t.Parallel()
	opts := locking.Options{TTL: 10 * time.Second, MaxHold: 20 * time.Second}
	force, deaf := func(r *ram) { delete(r.owners, "order") }, func(r *ram) { r.failRenew = errors.New("no answer") }
	for name, tt := range map[string]struct {
		harm      func(r *ram) // before it
		handedOff bool         // the lease that is lost
		within    time.Duration
	}{
		"MaxHold":                       {func(*ram) {}, false, 21 * time.Second},
		"taken by force":                {force, false, 5 * time.Second},
		"cannot renew":                  {deaf, false, 11 * time.Second},
		"MaxHold, handed off":           {func(*ram) {}, true, 21 * time.Second},
		"taken by force, handed off":    {force, true, 5 * time.Second},
		"cannot renew, when handed off": {deaf, true, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				inner := newRAM()
				gate := locking.NewGate(inner, locking.GateOptions{})
				first := acquire(t, gate, opts, "order")
				if tt.handedOff {
					second := inLine(t.Context(), gate, opts, "order")
					release(t, first)
					first = got(t, second)
				}
				before := tokenOf(t, first)
				a := inLine(t.Context(), gate, opts, "order")
				b := inLine(t.Context(), gate, opts, "order")
				inner.set(func() { tt.harm(inner) })
				began := time.Now()
				o := <-a
				if o.err != nil || o.at.Sub(began) > tt.within {
					t.Fatalf("after %v: %v, want a lease within %v", o.at.Sub(began), o.err, tt.within)
				}
				if !errors.Is(first.Err(), locking.ErrLost) || tokenOf(t, o.lease) <= before {
					t.Errorf("the old lease: %v; token %d after %d", first.Err(), tokenOf(t, o.lease), before)
				}
				inner.set(func() { inner.failRenew = nil })
				if err := first.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
					t.Errorf("release of the lost lease: %v, want ErrLost", err)
				}
				waits(t, b)
				if err := o.lease.Renew(t.Context()); err != nil || !inner.holds("order") {
					t.Errorf("the new lease was harmed: %v, held: %v", err, inner.holds("order"))
				}
				calls := inner.calls()
				release(t, o.lease)
				release(t, got(t, b))
				if n := inner.calls() - calls; n != 1 {
					t.Errorf("%d calls, want that the lease is handed off and released", n)
				}
			})
		})
	}
}

// A lease that was lost by the servers unnoticed is not handed off, and its keys are given back.
func TestAnEndedLeaseIsNotHandedOff(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		first := acquire(t, gate, locking.Options{TTL: 10 * time.Second}, "order")
		next := inLine(t.Context(), gate, locking.Options{TTL: 10 * time.Second}, "order")
		inner.set(func() { delete(inner.owners, "order") })
		if err := first.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
			t.Fatalf("renew: %v, want ErrLost", err)
		}
		if err := first.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
		got(t, next)
		if n := inner.asked(); n != 2 {
			t.Errorf("the servers were asked %d times, want 2", n)
		}
	})
}
