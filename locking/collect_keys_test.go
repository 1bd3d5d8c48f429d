package locking_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// collected is what a call of Collect returned.
type collected struct {
	leases []*locking.Lease
	err    error
}

// collecting starts a call of Collect in a bubble and returns once it waits or has ended.
func collecting(ctx context.Context, l locking.Locker, keys ...string) <-chan collected {
	c := make(chan collected, 1)
	go func() {
		leases, err := locking.Collect(ctx, l, keys, locking.Options{})
		c <- collected{leases, err}
	}()
	synctest.Wait()
	return c
}

func TestCollectKeepsKeysWhileItWaits(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		other := acquire(t, gate, locking.Options{}, "b")
		result := collecting(t.Context(), gate, "c", "a", "b", "a")
		if !inner.holds("a") || inner.holds("c") {
			t.Error("before b is free a is to be kept, and c not yet taken")
		}
		release(t, other)
		got := <-result
		if got.err != nil {
			t.Fatal(got.err)
		}
		joined := join(t, got.leases)
		if keys := joined.Keys(); !slices.Equal(keys, []string{"a", "b", "c"}) {
			t.Errorf("the lease is for %v", keys)
		}
		for _, key := range joined.Keys() {
			if token, err := joined.FenceOf(t.Context(), key); err != nil || token < 1 {
				t.Errorf("the token of %s is %d, %v", key, token, err)
			}
		}
		release(t, joined)
		for _, key := range []string{"a", "b", "c"} {
			if inner.holds(key) {
				t.Errorf("%s is still locked after the release", key)
			}
		}
	})
}

// A waiter for several keys keeps none, and may stand before the collector in the line of a key that it cannot use
// without another one.
func TestCollectStandsBeforeWaitersThatHoldNothing(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		other := acquire(t, gate, locking.Options{}, "b")
		waiter := inLine(t.Context(), gate, locking.Options{}, "a", "b")
		result := collecting(t.Context(), gate, "a", "b")
		release(t, other)
		synctest.Wait()
		got := <-result
		if got.err != nil {
			t.Fatal(got.err)
		}
		waits(t, waiter)
		release(t, join(t, got.leases))
		got2 := <-waiter
		if got2.err != nil {
			t.Fatal(got2.err)
		}
		release(t, got2.lease)
	})
}

func TestCollectReturnsWhatItHas(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		acquire(t, gate, locking.Options{}, "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		leases, err := locking.Collect(ctx, gate, []string{"a", "b", "c"}, locking.Options{})
		if len(leases) != 1 || !errors.Is(err, locking.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%d leases, %v, after %v", len(leases), err, time.Since(began))
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}
