package locking_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// The longest TTL in the tests of the guard, and the one in use.
const (
	guardedMaxTTL = 4 * time.Second
	guardedTTL    = 3 * time.Second // a server restarts within it, also on a busy machine
)

// guarded are the options of a Redlock whose guard soon trusts a server.
func guarded(mode locking.GuardMode) locking.RedlockOptions {
	return locking.RedlockOptions{Guard: mode, MaxTTL: guardedMaxTTL, NodeTimeout: guardedMaxTTL / 4}
}

// trusted waits until the guard of anybody trusts the servers.
func trusted(t testing.TB, clients []*redis.Client) {
	t.Helper()
	for _, c := range clients {
		await(t, "old enough", func() bool {
			uptime, err := strconv.Atoi(c.InfoMap(t.Context(), "server").Item("Server", "uptime_in_seconds"))
			return err == nil && time.Duration(uptime-1)*time.Second >= guardedMaxTTL
		})
	}
}

// joined waits until a locker gets a key on all of its nodes, and gives it back.
func joined(t testing.TB, l locking.Locker, clients []*redis.Client) {
	t.Helper()
	await(t, "all nodes take part", func() bool {
		lease, err := l.Acquire(t.Context(), []string{"join"}, locking.Options{TTL: guardedTTL})
		if err != nil {
			return false
		}
		everywhere := false
		for began := time.Now(); !everywhere && time.Since(began) < 300*time.Millisecond; <-time.After(2 * time.Millisecond) {
			everywhere = !slices.ContainsFunc(clients, func(c *redis.Client) bool { return !exists(t, c, "join") })
		}
		return lease.Release(t.Context()) == nil && everywhere // on a busy machine it may be lost
	})
	nowhere(t, clients, "join")
}

// minority is a Redlock of three servers, of which a holder has a key on the first two.
type minority struct {
	nodes   []*redis.Options
	opts    locking.RedlockOptions
	ttl     time.Duration
	clients []*redis.Client
}

// secondHolder makes the first server forget the lock by forget, and reports whether another holder gets the key while
// the holder still trusts its lease. It tries until another holder gets it at all. Of the others, one has known the
// servers before and one has not.
func (m minority) secondHolder(t testing.TB, forget func()) bool {
	t.Helper()
	holder, before := newRedlock(t, m.nodes, m.opts), newRedlock(t, m.nodes, m.opts)
	joined(t, holder, m.clients)
	joined(t, before, m.clients)
	do(t, m.clients[2], "SET", lockOf("order:1"), "a holder that is about to leave", "PX", 60_000)
	lease, err := holder.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: m.ttl})
	if err != nil {
		t.Fatal(err)
	}
	everywhere(t, m.clients[:2], "order:1")
	forget()
	do(t, m.clients[2], "DEL", lockOf("order:1"))
	if err := lease.Err(); err != nil {
		t.Fatalf("the machine is too slow for this test: %v", err)
	}
	others := []*redlockUser{{locker: before}, {locker: newRedlock(t, m.nodes, m.opts)}}
	for began := time.Now(); time.Since(began) < patience; <-time.After(5 * time.Millisecond) {
		for _, other := range others {
			second, err := other.locker.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: m.ttl})
			if err == nil {
				trusts := lease.Err() == nil
				t.Logf("%v later, after %d refusals, the last of them: %v", time.Since(began), other.refusals,
					other.last)
				_ = second.Release(t.Context())
				_ = lease.Release(t.Context())
				return trusts
			}
			other.refusals, other.last = other.refusals+1, err
		}
	}
	t.Fatalf("no holder gets the key within %v: %v", patience, others[0].last)
	return false
}

type redlockUser struct {
	locker   *locking.Redlock
	refusals int
	last     error
}

// withAndWithout runs a scenario with the guard, which must keep the key to one holder, and without, which must not: or
// the scenario would show nothing.
func withAndWithout(t *testing.T, scenario func(t *testing.T, mode locking.GuardMode) (minority, func())) {
	t.Helper()
	for name, mode := range map[string]locking.GuardMode{
		"guarded": locking.GuardConnect, "not guarded": locking.GuardOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, forget := scenario(t, mode)
			m.opts, m.ttl = guarded(mode), guardedTTL
			if mode == locking.GuardOff {
				m.opts.MaxTTL, m.ttl = 0, locking.DefaultTTL // renewed too late to notice
			} else {
				trusted(t, m.clients)
			}
			if got, want := m.secondHolder(t, forget), mode == locking.GuardOff; got != want {
				t.Errorf("a second holder: %v, want %v", got, want)
			}
		})
	}
}

func TestAnEmptyRestartGivesNoSecondLease(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, _ locking.GuardMode) (minority, func()) {
		servers, nodes := startNodes(t, 3)
		return minority{nodes: nodes, clients: admins(t, servers)}, func() {
			servers[0].Kill()
			servers[0].Restart(t)
		}
	})
}

// What a machine that loses its power takes along is what the append-only file had not been synced of: up to a second.
func TestAServerWithATruncatedFileDoesNotVote(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, mode locking.GuardMode) (minority, func()) {
		servers, nodes := startNodes(t, 3)
		servers[0] = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
		nodes[0] = &redis.Options{Addr: servers[0].Addr()}
		clients := admins(t, servers)
		do(t, clients[0], "SET", "written long ago", "1")
		file := appendOnlyFile(t, clients[0])
		synced, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return minority{nodes: nodes, clients: clients}, func() {
			servers[0].Kill()
			if err := os.Truncate(file, synced.Size()); err != nil {
				t.Fatal(err)
			}
			servers[0].Restart(t)
			if exists(t, clients[0], "order:1") || clients[0].Exists(t.Context(), "written long ago").Val() != 1 {
				t.Fatal("the server has not lost the end of its file alone")
			}
		}
	})
}

// appendOnlyFile returns the file that a server writes its log to.
func appendOnlyFile(t testing.TB, c *redis.Client) string {
	t.Helper()
	dir, err := c.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"appendonlydir/*.incr.aof", "*.aof"} { // Redis 7, Redis 6.2
		if files, _ := filepath.Glob(filepath.Join(dir["dir"], pattern)); len(files) == 1 {
			return files[0]
		}
	}
	t.Fatalf("no append-only file in %s", dir["dir"])
	return ""
}

func TestAFailoverGivesNoSecondLease(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, _ locking.GuardMode) (minority, func()) {
		servers, nodes := startNodes(t, 3)
		master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
		servers[0] = master
		replica := redistest.Start(t)
		var address link
		to := master.Addr()
		address.addr.Store(&to)
		nodes[0] = &redis.Options{Addr: "the-master:6379", Dialer: address.dial}

		clients, standby := admins(t, servers), replica.Client(t)
		host, port, err := net.SplitHostPort(master.Addr())
		if err != nil {
			t.Fatal(err)
		}
		do(t, standby, "REPLICAOF", host, port)
		await(t, "replicated", func() bool {
			return standby.InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") == "up"
		})
		trusted(t, []*redis.Client{standby}) // it must not be for its age that it is refused
		return minority{nodes: nodes, clients: clients}, func() {
			// What the replica has received of the lock is deleted, as if the master had died before it sent it.
			replica.Pause()
			master.Kill()
			replica.Resume()
			do(t, standby, "REPLICAOF", "NO", "ONE")
			do(t, standby, "DEL", lockOf("order:1"), counterOf("order:1"))
			to := replica.Addr()
			address.addr.Store(&to)
		}
	})
}

func TestStrictModeNoticesAServerSwappedByAProxy(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]locking.GuardMode{
		"strict": locking.GuardStrict, "connect, which cannot see it": locking.GuardConnect,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 3)
			clients := admins(t, servers)
			proxy := startProxy(t, servers[0].Addr())
			nodes[0] = &redis.Options{Addr: proxy.addr(), Protocol: 2}
			trusted(t, clients)
			m := minority{nodes: nodes, opts: guarded(mode), ttl: guardedMaxTTL, clients: clients}
			got := m.secondHolder(t, func() { proxy.switchTo(redistest.Start(t).Addr()) })
			if want := mode == locking.GuardConnect; got != want {
				t.Errorf("a second holder: %v, want %v", got, want)
			}
		})
	}
}

// The clock of a server that restarts is set forward, so that its process looks older than the longest TTL. This
// process has known the one before for longer than that, and keeps its connections meanwhile.
func TestASteppedClockGivesNoSecondLease(t *testing.T) {
	t.Parallel()
	const ttl, ahead = 6 * time.Second, 9 * time.Second // two servers restart within the TTL, also on a busy machine
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	var stepped []*proxy
	for i := range 2 {
		p := startProxy(t, servers[i].Addr())
		nodes[i] = &redis.Options{Addr: p.addr()}
		stepped = append(stepped, p)
	}
	opts := locking.RedlockOptions{MaxTTL: ttl, NodeTimeout: ttl / 4}
	holder, other := newRedlock(t, nodes, opts), newRedlock(t, nodes, opts)
	_, _ = other.Acquire(t.Context(), []string{"join"}, locking.Options{TTL: ttl}) // refused, but it meets the servers
	joined(t, holder, clients)
	known := time.Now().Add(-ttl / 2) // they voted no earlier than ttl after both had met them
	joined(t, other, clients)
	await(t, "known for longer than the clock is set forward", func() bool { return time.Since(known) > ahead })
	do(t, clients[2], "SET", lockOf("order:1"), "a holder that is about to leave", "PX", 60_000)
	lease := acquire(t, holder, locking.Options{TTL: ttl}, "order:1")
	everywhere(t, clients[:2], "order:1")
	for i, p := range stepped {
		p.step(ahead)
		servers[i].Kill()
		servers[i].Restart(t)
	}
	do(t, clients[2], "DEL", lockOf("order:1"))
	if err := lease.Err(); err != nil {
		t.Fatalf("the machine is too slow for this test: %v", err)
	}
	await(t, "another holder gets the key", func() bool {
		second, err := other.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: ttl})
		if err != nil {
			return false
		}
		if lease.Err() == nil {
			t.Error("two holders")
		}
		release(t, second)
		return true
	})
}

func TestAGuardRefusalSaysWhyAndUntilWhen(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]locking.GuardMode{"connect": locking.GuardConnect, "strict": locking.GuardStrict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 3)
			l := newRedlock(t, nodes, guarded(mode))
			began := time.Now()
			lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: guardedTTL})
			if lease != nil {
				t.Error("a lease of servers that have just started")
			}
			isClear(t, err, `acquire ["order:1"]`, "node ", "127.0.0.1:", "nobody has watched its process", "of 4s")
			if !errors.Is(err, locking.ErrUnavailable) {
				t.Errorf("error %v, want ErrUnavailable", err)
			}
			joined(t, l, admins(t, servers))
			if took := time.Since(began); took < time.Second { // the oldest of a majority was started less than a second before
				t.Errorf("trusted after %v", took)
			}
		})
	}
}
