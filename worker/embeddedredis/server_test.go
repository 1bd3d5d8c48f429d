package embeddedredis_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

var _ io.Closer = (*embeddedredis.Server)(nil)

func TestMain(m *testing.M) { leaktest.Verify(m) }

func TestServersShareNothing(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	if a.Addr() == b.Addr() {
		t.Fatalf("both servers are at %s", a.Addr())
	}
	if err := client(t, a).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := client(t, b).Exists(t.Context(), "k").Result(); err != nil || n != 0 {
		t.Errorf("the second server has %d of the first one's keys, %v", n, err)
	}
}

func TestServerListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	host, _, err := net.SplitHostPort(start(t).Addr())
	if err != nil || host != "127.0.0.1" {
		t.Errorf("listens on %q, %v", host, err)
	}
}

func TestKeysExpireByRealTime(t *testing.T) {
	t.Parallel()
	c := client(t, start(t))
	ctx := t.Context()
	const ttl = 50 * time.Millisecond
	before := time.Now()
	if err := c.Set(ctx, "k", "v", ttl).Err(); err != nil {
		t.Fatal(err)
	}

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		err := c.Get(ctx, "k").Err()
		if errors.Is(err, redis.Nil) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("a key with a TTL of %v is there after ten seconds", ttl)
		}
	}
	if lived := time.Since(before); lived < ttl {
		t.Errorf("the key was gone after %v, its TTL is %v", lived, ttl)
	}
}

func TestScriptTimeIsRealTime(t *testing.T) {
	t.Parallel()
	c := client(t, start(t))
	before := time.Now().Truncate(time.Second)
	sec, err := redis.NewScript(`return redis.call('TIME')[1]`).Run(t.Context(), c, nil).Int64()
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Unix(sec, 0); got.Before(before) || got.After(time.Now()) {
		t.Errorf("TIME in a script is %v, asked between %v and now", got, before)
	}
}

func TestCloseFreesThePortAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := client(t, s)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Errorf("one more Close: %v", err)
	}
	if s.Addr() != addr {
		t.Errorf("Addr is %q after Close, was %q", s.Addr(), addr)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the closed server still accepts connections")
	}
}

func start(t *testing.T) *embeddedredis.Server {
	t.Helper()
	s, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func client(t *testing.T, s *embeddedredis.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
