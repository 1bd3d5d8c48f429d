package restartguard_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/restartguard"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

const (
	// patience bounds every wait for an event in real time.
	patience = 20 * time.Second
	// maxTTL is the longest TTL of the tests with real servers.
	maxTTL = 2 * time.Second
	// anyAge is a longest TTL of which every server is old enough once this process has seen it, for tests of other
	// reasons.
	anyAge = time.Nanosecond
)

var (
	idA = strings.Repeat("a", 40)
	idB = strings.Repeat("b", 40)
	idC = strings.Repeat("c", 40)
)

// newGuard returns a guard for n nodes.
func newGuard(t testing.TB, n int, opts restartguard.Options) *restartguard.Guard {
	t.Helper()
	g, err := restartguard.New(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// dials counts the connections that were really dialled.
type dials struct{ n atomic.Int64 }

// protected returns a client as one for locks should be, whose node is guarded and whose dials are counted.
func protected(
	t testing.TB, s *redistest.Server, n *restartguard.Node, count *dials, mods ...func(*redis.Options),
) *redis.Client {
	t.Helper()
	return s.Client(t, func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if count != nil {
				count.n.Add(1)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		for _, mod := range mods {
			mod(o)
		}
		n.Protect(o)
	})
}

// refusedFor checks that an error is a refusal for this reason, and returns it.
func refusedFor(t testing.TB, err error, reason restartguard.Reason) *restartguard.RefusedError {
	t.Helper()
	refusal, ok := errors.AsType[*restartguard.RefusedError](err)
	if !ok || refusal.Reason != reason || !errors.Is(err, restartguard.ErrRefused) {
		t.Fatalf("error %v, want a refusal because %s", err, reason)
	}
	for _, part := range []string{"locking: node ", refusal.Cause, refusal.Remedy, string(reason)} {
		if part == "" || !strings.Contains(err.Error(), part) {
			t.Fatalf("refusal %q does not say %q", err, part)
		}
	}
	return refusal
}

// accepted asks a server whenever its node is not blocked until it answers, and returns when that was.
func accepted(t testing.TB, n *restartguard.Node, c *redis.Client) time.Time {
	t.Helper()
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := n.Blocked()
		if err == nil {
			err = c.Ping(t.Context()).Err()
		}
		if err == nil {
			return time.Now()
		}
		if time.Since(began) > patience {
			t.Fatalf("the server is still refused: %v", err)
		}
	}
}

// eventuallyRefused asks a server until it is refused for this reason.
func eventuallyRefused(t testing.TB, c *redis.Client, reason restartguard.Reason) *restartguard.RefusedError {
	t.Helper()
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		err := c.Ping(t.Context()).Err()
		if refusal, ok := errors.AsType[*restartguard.RefusedError](err); ok && refusal.Reason == reason {
			return refusal
		}
		if time.Since(began) > patience {
			t.Fatalf("error %v, want a refusal because %s", err, reason)
		}
	}
}

// do runs a command that must succeed.
func do(t testing.TB, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// facts returns those of a server that runs for an hour, and that another client has watched for this long.
func facts(now time.Time, watched time.Duration, mods ...func(*restartguard.Facts)) restartguard.Facts {
	f := restartguard.Facts{
		RunID: idA, Role: "master", ReplID: idB, Uptime: time.Hour, Watched: watched, Policy: "noeviction",
	}.Timed(now, now, now)
	for _, mod := range mods {
		mod(&f)
	}
	return f
}
