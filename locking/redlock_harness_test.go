package locking_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// lockOf returns the name of the lock of a key.
func lockOf(key string) string { return "railtoken:lock:{" + key + "}" }

// counterOf returns the name of the fence counter of a key.
func counterOf(key string) string { return lockOf(key) + ":fence" }

// admins returns a client of each server that has nothing to do with locks.
func admins(t testing.TB, servers []*redistest.Server) []*redis.Client {
	t.Helper()
	clients := make([]*redis.Client, len(servers))
	for i, s := range servers {
		clients[i] = s.Client(t)
	}
	return clients
}

// await waits until something is so, which it asks again and again.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); <-time.After(2 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("not so within %v: %s", patience, what)
		}
	}
}

// exists reports whether a server has the lock of a key.
func exists(t testing.TB, admin *redis.Client, key string) bool {
	t.Helper()
	n, err := admin.Exists(t.Context(), lockOf(key)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// everywhere waits until all of the servers have the lock of a key.
func everywhere(t testing.TB, admins []*redis.Client, key string) {
	t.Helper()
	for _, admin := range admins {
		await(t, key+" is locked on "+admin.Options().Addr, func() bool { return exists(t, admin, key) })
	}
}

// nowhere waits until none of the servers has the lock of a key.
func nowhere(t testing.TB, admins []*redis.Client, key string) {
	t.Helper()
	for _, admin := range admins {
		await(t, key+" is free on "+admin.Options().Addr, func() bool { return !exists(t, admin, key) })
	}
}

// abandoned waits until a server knows that an owner has given a key up, so that it refuses calls of that owner.
func abandoned(t testing.TB, admin *redis.Client, key string) {
	t.Helper()
	await(t, "the owner of "+key+" has given it up on "+admin.Options().Addr, func() bool {
		return strings.Contains(admin.Get(t.Context(), counterOf(key)).Val(), "@")
	})
}

// do runs a command that must succeed.
func do(t testing.TB, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// prompt checks that a call does not wait for servers that do not answer.
func prompt(t testing.TB, what string, call func() error) {
	t.Helper()
	began := time.Now()
	if err := call(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if took := time.Since(began); took > promptly {
		t.Errorf("%s took %v", what, took)
	}
}

// link is the network between a client and a server. It loses what lose says without telling anybody.
type link struct {
	lose atomic.Pointer[func(sent []byte) bool]
	addr atomic.Pointer[string] // where dials go instead; nil for where they are meant to
}

func (l *link) losing(lose func(sent []byte) bool) { l.lose.Store(&lose) }

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if to := l.addr.Load(); to != nil {
		addr = *to
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &linkConn{conn, l}, nil
}

type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Write(b []byte) (int, error) {
	if lose := c.link.lose.Load(); lose != nil && (*lose)(b) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
