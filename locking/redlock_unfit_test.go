package locking_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Whoever else has the one node that is left cannot have a majority: that is no refusal, and whoever waits must learn
// of the outage.
func TestAnOutageIsNotTakenForAHolder(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	release(t, acquire(t, l, locking.Options{}, "k"))
	do(t, clients[0], "SET", lockOf("k"), "x", "PX", 30_000)
	servers[1].Kill()
	servers[2].Kill()
	_, _ = l.Acquire(t.Context(), []string{"k"}, locking.Options{}) // finds out that they are away
	for range 20 {
		if _, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{}); !errors.Is(err, locking.ErrUnavailable) || errors.Is(err, locking.ErrHeld) {
			t.Fatalf("error %v, want ErrUnavailable alone", err)
		}
	}
}

func TestAQuarantineIsToldFromAnOutage(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	young := newRedlock(t, nodes, locking.RedlockOptions{NodeTimeout: unguarded.NodeTimeout})
	_, err := young.Acquire(t.Context(), []string{"k"}, locking.Options{})
	if !errors.Is(err, locking.ErrQuarantined) || !errors.Is(err, locking.ErrUnavailable) ||
		!strings.Contains(err.Error(), "turn the guard off") {
		t.Errorf("young servers: error %v, want ErrQuarantined and ErrUnavailable, and what to do in tests", err)
	}
	for _, s := range servers {
		s.Kill()
	}
	away := newRedlock(t, nodes, locking.RedlockOptions{NodeTimeout: unguarded.NodeTimeout})
	_, err = away.Acquire(t.Context(), []string{"k"}, locking.Options{})
	if errors.Is(err, locking.ErrQuarantined) || !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("servers that are away: error %v, want ErrUnavailable alone", err)
	}
}

func TestCloseAwaitsReleasesUnderWay(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	for range 50 {
		l := newRedlock(t, nodes, unguarded)
		lease, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		_, _ = l.Acquire(ctx, []string{"k"}, locking.Options{}) // refused or given up
		release(t, lease)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		nowhereNow(t, clients, "k")
	}
}

// nowhereNow checks that a lock is on no server.
func nowhereNow(t *testing.T, clients []*redis.Client, key string) {
	t.Helper()
	for i, c := range clients {
		if value := c.Get(t.Context(), lockOf(key)).Val(); value != "" {
			t.Errorf("server %d still has the lock %.60q", i, value)
		}
	}
}

func TestAnInvalidAddressIsRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "redis://u:hunter2@127.0.0.1:1", "u:hunter2@127.0.0.1:1"} {
		_, err := locking.NewRedlock([]*redis.Options{{Addr: "a:1"}, {Addr: addr}, {Addr: "c:1"}},
			locking.RedlockOptions{})
		if err == nil || !strings.Contains(err.Error(), "node 1") || !strings.Contains(err.Error(), "host:port") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v", addr, err)
		}
	}
}
