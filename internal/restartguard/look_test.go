package restartguard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// tells has a fake server answer INFO with these sections, and TIME with a clock that is ahead. It closes a connection that asks
// for one of the keys.
func tells(m *miniredis.Miniredis, info string, ahead time.Duration, closes ...string) {
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		switch {
		case strings.EqualFold(cmd, "GET") && slices.Contains(closes, args[0]):
			c.Close()
		case strings.EqualFold(cmd, "INFO"):
			c.WriteBulk(map[string]string{"server": info, "replication": replicationInfo, "memory": memoryInfo}[args[0]])
		case strings.EqualFold(cmd, "TIME"):
			now := time.Now().Add(ahead)
			c.WriteLen(2)
			c.WriteBulk(fmt.Sprint(now.Unix()))
			c.WriteBulk(fmt.Sprint(now.Nanosecond() / 1000))
		default:
			return false
		}
		return true
	})
}

func TestALookVetsAsAFirstConnectionDoes(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	c := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1, PoolSize: 1, PoolTimeout: time.Second})
	t.Cleanup(func() { c.Close() })
	mark := func(watched time.Duration) {
		if err := m.Set(restartguard.MarkKey, fmt.Sprint(idA, " ", idB, " ", watched.Milliseconds())); err != nil {
			t.Fatal(err)
		}
	}
	tells(m, serverInfo, 0)
	if got := refusedFor(t, restartguard.Look(t.Context(), c, ttl), restartguard.Young); got.Addr != m.Addr() {
		t.Errorf("the refusal is of %q", got.Addr)
	}
	mark(ttl)
	for range 2 { // with one connection, which the first look gives back
		if refusal := restartguard.Look(t.Context(), c, ttl); refusal != nil {
			t.Error(refusal)
		}
	}
	tells(m, serverInfo, ttl/4+time.Second)
	refusedFor(t, restartguard.Look(t.Context(), c, ttl), restartguard.Skewed)

	tells(m, strings.Replace(serverInfo, ":123", ":x", 1), 0)
	before := time.Now()
	refusal := refusedFor(t, restartguard.Look(t.Context(), c, ttl), restartguard.Unreadable)
	if refusal.Addr != m.Addr() || refusal.Err == nil || refusal.Until.Before(before.Add(time.Second)) {
		t.Errorf("%+v", refusal)
	}
	addr := m.Addr()
	m.Close()
	refusal = refusedFor(t, restartguard.Look(t.Context(), c, ttl), restartguard.Unreachable)
	if refusal.Err == nil || refusal.Addr != addr {
		t.Errorf("%+v", refusal)
	}
}

// A server whose answers make no sense is another matter than one that does not answer: its connection is whole.
func TestAnAnswerThatCannotBeReadEndsTheIdentity(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	tells(m, serverInfo, 0)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	client := func() *redis.Client {
		o := &redis.Options{Addr: m.Addr(), MaxRetries: -1}
		n.Protect(o)
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		return c
	}
	accepted(t, n, client())
	if n.Identity() != idA+" "+idB {
		t.Fatalf("identity %q", n.Identity())
	}
	tells(m, strings.Replace(serverInfo, ":123", ":x", 1), 0)
	refusal := refusedFor(t, client().Ping(t.Context()).Err(), restartguard.Unreadable)
	if !strings.Contains(refusal.Error(), "node 0 ("+m.Addr()+")") || n.Identity() != "" {
		t.Errorf("%v, and the identity is %q", refusal, n.Identity())
	}
}

func TestAConnectionThatEndsWithItsAnswersIsRefused(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	tells(m, serverInfo, 0, restartguard.MarkKey)
	n := newGuard(t, 1, restartguard.Options{MaxTTL: anyAge, MaxSkew: time.Minute}).Node(0)
	o := &redis.Options{Addr: m.Addr(), MaxRetries: -1}
	n.Protect(o)
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	refusedFor(t, c.Ping(t.Context()).Err(), restartguard.Unreachable)
}

func TestAMarkIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	connect := func(maxTTL time.Duration) {
		n := newGuard(t, 1, restartguard.Options{MaxTTL: maxTTL, MaxSkew: time.Minute}).Node(0)
		accepted(t, n, protected(t, s, n, nil))
	}
	connect(20 * time.Millisecond)
	facts, err := restartguard.ParseFacts(admin.Info(t.Context(), "server").Val(), admin.Info(t.Context(), "replication").Val(),
		admin.Info(t.Context(), "memory").Val())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := admin.Get(t.Context(), restartguard.MarkKey).Val(), facts.Identity()+" 20"; got != want {
		t.Errorf("the mark is %q, want %q", got, want)
	}
	if ttl := admin.TTL(t.Context(), restartguard.MarkKey).Val(); ttl != -1 {
		t.Errorf("the mark ends after %v", ttl)
	}
	do(t, admin, "CONFIG", "RESETSTAT")
	connect(20 * time.Millisecond)
	if stats := admin.Info(t.Context(), "commandstats").Val(); strings.Contains(stats, "cmdstat_set:") {
		t.Errorf("a client that needs no other mark has written it: %s", stats)
	}
}
