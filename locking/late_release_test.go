package locking_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// late is a gated Locker on a server of its own, what it tells of late, and its order:1 has a subscriber.
func late(t *testing.T) (server *redistest.Server, gate *locking.Gate, told <-chan []string) {
	t.Helper()
	server = redistest.Start(t)
	single, err := locking.NewSingle(server.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = 100*time.Millisecond, -1, true
	}), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate = locking.NewGate(single, locking.GateOptions{})
	t.Cleanup(func() { _ = single.Close() })
	all := make(chan []string, 100)
	t.Cleanup(locks.OnLateRelease(gate, func(keys []string) { all <- keys }))
	release(t, acquire(t, gate, locking.Options{}, "warm up"))
	do(t, server.Client(t), "SET", lockOf("order:1")+":notify", "1", "PX", 60_000)
	return server, gate, all
}

func awaitTold(t *testing.T, told <-chan []string) {
	t.Helper()
	select {
	case keys := <-told:
		if !slices.Equal(keys, []string{"order:1"}) {
			t.Errorf("told of %q", keys)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
}

func expectFree(t *testing.T, server *redistest.Server) {
	t.Helper()
	if n := server.Client(t).Exists(t.Context(), lockOf("order:1")).Val(); n != 0 {
		t.Errorf("order:1 is locked on %s", server.Addr())
	}
}

// A server that was stopped executes an attempt when it continues. The attempt has no lease whose release would tell
// those who are refused until it is given back.
func TestAnAttemptGivenBackLateIsTold(t *testing.T) {
	t.Parallel()
	server, gate, told := late(t)
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := gate.Acquire(ctx, []string{"order:1"}, locking.Options{}); err == nil {
		t.Fatal("acquired from a stopped server")
	}
	server.Resume()
	awaitTold(t, told)
	expectFree(t, server)
}

func TestAReleaseAnsweredLateIsTold(t *testing.T) {
	t.Parallel()
	server, gate, told := late(t)
	lease := acquire(t, gate, locking.Options{}, "order:1")
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := lease.Release(ctx); err == nil || !lease.ShouldNotify() {
		t.Errorf("released on a stopped server: %v", err)
	}
	server.Resume()
	awaitTold(t, told)
	expectFree(t, server)
}

func TestARedlockAttemptGivenBackLateIsTold(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	l := newRedlock(t, nodes, unguarded)
	told := make(chan []string, 100)
	t.Cleanup(locks.OnLateRelease(l, func(keys []string) { told <- keys }))
	release(t, eventually(t, l, "warm up"))
	for _, c := range admins(t, servers) {
		do(t, c, "SET", lockOf("order:1")+":notify", "1", "PX", 60_000)
	}
	for _, s := range servers[:3] {
		s.Pause()
	}
	if _, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{}); err == nil {
		t.Fatal("acquired without a quorum")
	}
	for _, s := range servers[:3] {
		s.Resume()
	}
	for range 3 { // each server on its own, because nothing knows what the others have executed
		awaitTold(t, told)
	}
	for _, s := range servers {
		expectFree(t, s)
	}
}

func TestALostReplyHidesNoLateRelease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	single, err := locking.NewSingle(server.Client(t, func(o *redis.Options) {
		o.Addr, o.MaxRetries = proxy.Addr(), -1
	}), locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = single.Close() })
	told := make(chan []string, 100)
	t.Cleanup(locks.OnLateRelease(single, func(keys []string) { told <- keys }))
	var cuts atomic.Int64
	proxy.Cut(func(request, _ []byte) bool { return redistest.IsScript(request) && cuts.Add(-1) >= 0 })
	release(t, acquire(t, single, locking.Options{}, "warm up")) // the server knows the scripts then
	for _, lost := range []int64{1, 2, 3} {                      // the reply to the attempt, and those to the calls that give it back
		do(t, server.Client(t), "SET", lockOf("order:1")+":notify", "1", "PX", 60_000)
		cuts.Store(lost)
		if _, err := single.Acquire(t.Context(), []string{"order:1"}, locking.Options{}); err == nil {
			t.Fatal("acquired without a reply")
		}
		awaitTold(t, told)
		expectFree(t, server)
	}
}
