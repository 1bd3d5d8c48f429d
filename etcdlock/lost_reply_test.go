package etcdlock_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// A reply is lost after etcd has executed the call. No key may stay locked for its TTL of 30 s.
func TestLostRepliesLeaveNoKeyLocked(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	proxy := redistest.NewProxy(t, addrs[0])
	opts := etcdlock.Options{Prefix: "lost/"}
	l, direct := newLocker(t, []string{proxy.Addr()}, opts), newLocker(t, addrs, opts)
	var cuts, kinds atomic.Int64
	// cut loses the next reply to a transaction on the key: with a value to an acquisition, else to a release.
	cut := func(acquisition bool) {
		var once atomic.Bool
		proxy.Cut(func(request, _ []byte) bool {
			if bytes.Contains(request, []byte("lost/lock/order")) && bytes.Contains(request, []byte(`"label"`)) == acquisition &&
				once.CompareAndSwap(false, true) {
				cuts.Add(1)
				return true
			}
			return false
		})
	}
	for round := 0; cuts.Load() < 20 && round < 60; round++ {
		cut(round%2 == 0)
		lease, err := l.Acquire(t.Context(), []string{"order"}, locking.Options{})
		if err == nil {
			if err := lease.Release(t.Context()); err != nil {
				kinds.Add(1)
				if errors.Is(err, locking.ErrLost) {
					t.Errorf("a release without an answer says %v", err)
				}
			}
		} else if !errors.Is(err, locking.ErrUnavailable) {
			t.Errorf("an acquisition without an answer says %v", err)
		}
		proxy.Cut(nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		next, err := locking.Wait(ctx, direct, []string{"order"}, locking.Options{})
		cancel()
		if err != nil {
			t.Fatalf("round %d: the key stays locked: %v", round, err)
		}
		release(t, next)
	}
	if n := cuts.Load(); n < 20 || kinds.Load() == 0 || kinds.Load() == n {
		t.Errorf("%d replies were cut, %d of them to releases", n, kinds.Load())
	}
}

// A renewal without an answer proves nothing.
func TestALostReplyToARenewalLosesNoLease(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	proxy := redistest.NewProxy(t, addrs[0])
	l := newLocker(t, []string{proxy.Addr()}, etcdlock.Options{Prefix: "renewal/"})
	lease := acquire(t, l, locking.Options{}, "order")
	proxy.Cut(func(_, _ []byte) bool { return true })
	if err := lease.Renew(t.Context()); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("a renewal without an answer says %v", err)
	}
	proxy.Cut(nil)
	if err := lease.Err(); err != nil {
		t.Errorf("the lease ended: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for lease.Renew(ctx) != nil && ctx.Err() == nil { //nolint:revive // until the client has a connection again
	}
	if err := lease.Renew(ctx); err != nil {
		t.Error(err)
	}
	release(t, lease)
}

// A transaction that arrives after its caller has given up, and after etcd has confirmed the revocation, has no effect.
func TestALateTransactionTakesNothing(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	proxies := []*redistest.Proxy{redistest.NewProxy(t, addrs[0]), redistest.NewProxy(t, addrs[0])}
	opts := etcdlock.Options{Prefix: "late/"}
	l, direct := newLocker(t, []string{proxies[0].Addr(), proxies[1].Addr()}, opts), newLocker(t, addrs, opts)
	release(t, acquire(t, l, locking.Options{}, "other")) // both connections are there, and a spare lease of etcd

	var first atomic.Bool
	match := func(request []byte) bool {
		return bytes.Contains(request, []byte("late/lock/order")) && bytes.Contains(request, []byte(`"label"`)) &&
			first.CompareAndSwap(false, true)
	}
	held := []*redistest.Held{proxies[0].Hold(match), proxies[1].Hold(match)}
	ctx, cancel := context.WithCancel(t.Context())
	attempt := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, []string{"order"}, locking.Options{})
		attempt <- err
	}()
	var late *redistest.Held
	select {
	case <-held[0].Caught:
		late = held[0]
	case <-held[1].Caught:
		late = held[1]
	}
	cancel()
	if err := <-attempt; !errors.Is(err, context.Canceled) {
		t.Errorf("the attempt says %v", err)
	}
	if err := l.Close(); err != nil { // waits until etcd has revoked the lease
		t.Fatal(err)
	}
	late.Deliver()
	release(t, acquire(t, direct, locking.Options{}, "order"))
	stored, err := newClient(t, addrs).Get(t.Context(), "late/lock/order")
	if err != nil || len(stored.Kvs) != 0 {
		t.Errorf("a late transaction has taken the key: %v, %v", stored, err)
	}
}
