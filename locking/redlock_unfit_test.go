package locking_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// Another owner of the one node that is left cannot have a majority: that is no refusal, and a waiting caller must
// learn of the outage.
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
		if _, err := l.Acquire(t.Context(), []string{"k"},
			locking.Options{}); !errors.Is(err, locking.ErrUnavailable) || errors.Is(err, locking.ErrHeld) {
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

// A server that is named twice must not have two votes: it would be a majority of three by itself.
func TestAServerNamedTwiceHasOneVote(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 2)
	_, port, err := net.SplitHostPort(servers[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	again := &redis.Options{Addr: "localhost:" + port}
	l := newRedlock(t, []*redis.Options{nodes[0], again, nodes[1]}, unguarded)
	release(t, eventually(t, l, "order:1")) // on two servers
	servers[1].Kill()
	for range 5 {
		lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
		if lease != nil {
			t.Fatal("one server is a majority of three nodes")
		}
		isClear(t, err, "it is the server of another node", "name each server once")
	}
	if _, err := locking.NewRedlock([]*redis.Options{nodes[0], nodes[1], {Addr: nodes[0].Addr}},
		unguarded); err == nil || !strings.Contains(err.Error(), "name each once") {
		t.Errorf("error %v of a list that names a server twice", err)
	}
}

func TestGuardModesHaveNames(t *testing.T) {
	t.Parallel()
	for mode, want := range map[locking.GuardMode]string{
		locking.GuardConnect: "connect", locking.GuardStrict: "strict", locking.GuardOff: "off", 7: "GuardMode(7)",
	} {
		if got := mode.String(); got != want {
			t.Errorf("%d is %q, want %q", int(mode), got, want)
		}
	}
}

func TestErrorsTellNoPassword(t *testing.T) {
	t.Parallel()
	const password, wrong = "correct-horse", "battery-staple"
	servers, nodes := make([]*redistest.Server, 3), make([]*redis.Options, 3)
	for i := range servers {
		servers[i] = redistest.Start(t, "--requirepass", password)
		nodes[i] = &redis.Options{Addr: servers[i].Addr(), Username: "default", Password: wrong}
	}
	nodes[2].Password = password
	tells := func(err error) {
		t.Helper()
		if err == nil {
			t.Fatal("no error")
		}
		for _, secret := range []string{password, wrong} {
			if text := fmt.Sprintf("%v %+v %#v", err, err, err.Error()); strings.Contains(text, secret) {
				t.Errorf("the password is told: %s", text)
			}
		}
	}
	for _, guard := range []locking.GuardMode{locking.GuardOff, locking.GuardConnect, locking.GuardStrict} {
		l := newRedlock(t, nodes, locking.RedlockOptions{Guard: guard, NodeTimeout: 2 * time.Second})
		_, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
		tells(err)
		isClear(t, err, "WRONGPASS")
		prompt(t, "close", l.Close) // no server has executed anything that must be released
	}
	_, err := locking.NewRedlock([]*redis.Options{nodes[0], nodes[0], nil}, locking.RedlockOptions{})
	tells(err)
	for _, s := range servers {
		s.Kill()
	}
	l := newRedlock(t, nodes, unguarded)
	_, err = l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	tells(err)
}

func TestAKeyOfTheWrongTypeIsPermanent(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	for _, c := range clients {
		do(t, c, "LPUSH", lockOf("order:2"), "what another program keeps here")
	}
	l := newRedlock(t, nodes, unguarded)
	lease, err := l.Acquire(t.Context(), []string{"order:1", "order:2"}, locking.Options{})
	if lease != nil {
		t.Error("a lease")
	}
	isClear(t, err, `acquire ["order:1" "order:2"]`, "WRONGTYPE")
	prompt(t, "close", l.Close) // the release fails in the same way each time
	if errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("error %v says that it is worth trying again", err)
	}
	nowhere(t, clients, "order:1")
	for _, c := range clients {
		if n := c.LLen(t.Context(), lockOf("order:2")).Val(); n != 1 {
			t.Errorf("the list of the other program has %d elements now", n)
		}
	}
}
