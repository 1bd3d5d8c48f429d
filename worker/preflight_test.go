package worker

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/access"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker/embedded"
)

func TestCheckInfo(t *testing.T) {
	t.Parallel()
	info := func(fields ...string) string { return "# Server\r\n" + strings.Join(fields, "\r\n") + "\r\n" }
	for name, tc := range map[string]struct {
		info    string
		cluster bool
		allow   bool
		parts   []string // none when the Redis is fit
	}{
		"nothing told":           {info: ""},
		"not an INFO":            {info: "hello\nredis_version\n:::\n"},
		"7.2 without a limit":    {info: info("redis_version:7.2.4", "role:master", "maxmemory:0", "maxmemory_policy:allkeys-lru")},
		"6.2":                    {info: info("redis_version:6.2.0", "role:master")},
		"10.0":                   {info: info("redis_version:10.0.1")},
		"a version of its own":   {info: info("redis_version:unstable")},
		"another of its own":     {info: info("redis_version:v5.0")},
		"6.0":                    {info: info("redis_version:6.0.16"), parts: []string{"version 6.0.16", "6.2 or later"}},
		"5":                      {info: info("redis_version:5.9.9"), parts: []string{"version 5.9.9"}},
		"a replica":              {info: info("role:slave"), parts: []string{"is a replica", "address of its master"}},
		"a node of a cluster":    {info: info("cluster_enabled:1"), parts: []string{"node of a Redis Cluster", "RAILTOKEN_REDIS_CLUSTER"}},
		"a cluster, as it says":  {info: info("cluster_enabled:1"), cluster: true},
		"no cluster":             {info: info("cluster_enabled:0")},
		"a limit, noeviction":    {info: info("maxmemory:1000", "maxmemory_policy:noeviction")},
		"a limit, no policy":     {info: info("maxmemory:1000")},
		"a limit, eviction":      {info: info("maxmemory:1000", "maxmemory_policy:volatile-ttl"), parts: []string{"volatile-ttl", "noeviction"}},
		"eviction allowed":       {info: info("maxmemory:1000", "maxmemory_policy:allkeys-lru"), allow: true},
		"allowed, but a replica": {info: info("role:slave", "maxmemory:1000", "maxmemory_policy:allkeys-lru"), allow: true, parts: []string{"replica"}},
		"all at once": {
			info:  info("redis_version:4.0.0", "role:slave", "maxmemory:1", "maxmemory_policy:allkeys-lru"),
			parts: []string{"version 4.0.0", "replica", "allkeys-lru"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkInfo(tc.info, tc.cluster, tc.allow)
			if len(tc.parts) > 0 {
				wantParts(t, err, tc.parts...)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// starts starts a worker with a handler that has nothing to do, and returns the error of it.
func starts(t testing.TB, cfg Config) error {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	handle(t, w, "audit", nothing)
	err = w.Start(t.Context())
	if closed := w.Shutdown(); closed != nil {
		t.Errorf("shutdown: %v", closed)
	}
	return err
}

// nobody returns an address where nobody listens.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func TestUnreachableRedisIsNamedWithinTheBound(t *testing.T) {
	t.Parallel()
	here, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	gone := nobody(t)
	for name, tc := range map[string]struct {
		cfg   Config
		parts []string
	}{
		"tasks":     {Config{Redis: Redis{Addr: gone}}, []string{gone, "RAILTOKEN_REDIS_ADDR", "is it running"}},
		"locks":     {Config{Redis: Redis{Addr: here.Addr()}, LockRedis: Redis{Addr: gone}}, []string{gone, "RAILTOKEN_LOCK_REDIS_ADDR"}},
		"sentinels": {Config{Redis: Redis{Master: "m", Sentinels: []string{gone}}}, []string{gone, "RAILTOKEN_REDIS_SENTINELS"}},
		"cluster":   {Config{Redis: Redis{Cluster: []string{gone}}, Strategy: middleware.FailFast{}}, []string{gone, "RAILTOKEN_REDIS_CLUSTER"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			wantParts(t, starts(t, tc.cfg), tc.parts...)
			if took := time.Since(began); took > preflightTimeout+5*time.Second {
				t.Errorf("it took %v to find out; the bound is %v", took, preflightTimeout)
			}
		})
	}
}

func TestUnreachableRedisKeepsItsCause(t *testing.T) {
	t.Parallel()
	err := starts(t, Config{Redis: Redis{Addr: nobody(t)}})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the error is %v; want one that matches ECONNREFUSED", err)
	}
}

func TestRedisThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", ContextTimeoutEnabled: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				t.Cleanup(func() { _ = theirs.Close() })
				return ours, nil
			},
		})
		defer c.Close()
		log, _ := newLines()
		began := time.Now()
		err := preflight(t.Context(), c, Redis{Addr: "127.0.0.1:1"}, "RAILTOKEN_REDIS_ADDR", access.Needs{Locks: true}, false, log)
		wantParts(t, err, "127.0.0.1:1", "RAILTOKEN_REDIS_ADDR")
		if took := time.Since(began); took > preflightTimeout {
			t.Errorf("given up after %v; want at most %v", took, preflightTimeout)
		}
	})
}

func TestPreflightEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := idle(t, Config{Redis: Redis{Addr: nobody(t)}})
	handle(t, w, "audit", nothing)
	if err := w.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a start whose context has ended gives %v", err)
	}
}

func TestEvictionIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
	cfg := Config{Redis: Redis{Addr: server.Addr()}}
	wantParts(t, starts(t, cfg), server.Addr(), "allkeys-lru", "noeviction", "RAILTOKEN_ALLOW_EVICTION")
	cfg.AllowEviction = true
	if err := starts(t, cfg); err != nil {
		t.Errorf("eviction is allowed, and refused: %v", err)
	}
	good := redistest.Start(t, "--maxmemory", "200mb", "--maxmemory-policy", "noeviction")
	if err := starts(t, Config{Redis: Redis{Addr: good.Addr()}}); err != nil {
		t.Errorf("noeviction is refused: %v", err)
	}
	wantParts(t, starts(t, Config{Redis: Redis{Addr: good.Addr()}, LockRedis: Redis{Addr: server.Addr()}}), server.Addr(), "allkeys-lru")
}

func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host, port)
	wantParts(t, starts(t, Config{Redis: Redis{Addr: replica.Addr()}}), replica.Addr(), "is a replica")
}

func TestPasswordIsUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", password)
	log, lines := newLines()
	at := Redis{Addr: server.Addr(), Password: password}
	if err := starts(t, Config{Redis: at, LockRedis: at, Logger: log}); err != nil {
		t.Errorf("the right password is refused: %v", err)
	}
	text := lines.all()
	if !strings.Contains(text, "worker started") || !strings.Contains(text, server.Addr()) {
		t.Errorf("the log does not tell of the start:\n%s", text)
	}
	wantNoPassword(t, "the log", text)
	wantParts(t, starts(t, Config{Redis: Redis{Addr: server.Addr(), Password: "wrong"}}), "WRONGPASS", "RAILTOKEN_REDIS_ADDR", "password")
	wantParts(t, starts(t, Config{Redis: Redis{Addr: server.Addr()}}), "NOAUTH")
}

func TestEmbeddedRedisIsFit(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := starts(t, Config{Redis: Redis{Addr: server.Addr()}}); err != nil {
		t.Error(err)
	}
}

func TestRedisThatTellsNothingIsTakenWithAWarning(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	user := []any{"ACL", "SETUSER", "worker", "on", ">" + password, "~*", "&*", "+@all", "-info"}
	if err := server.Client(t).Do(t.Context(), user...).Err(); err != nil {
		t.Fatal(err)
	}
	log, lines := newLines()
	if err := starts(t, Config{Redis: Redis{Addr: server.Addr(), Username: "worker", Password: password}, Logger: log}); err != nil {
		t.Error(err)
	}
	text := lines.all()
	if !strings.Contains(text, "does not tell about itself") || !strings.Contains(text, server.Addr()) {
		t.Errorf("no warning in the log:\n%s", text)
	}
	wantNoPassword(t, "the log", text)
}

func TestOlderThan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"6.1.9": true, "6.2.0": false, "6.2": false, "5.9": true, "7.0.0": false, "10.1.0": false, "": false, "7": false, "x.y": false,
		strconv.Itoa(1 << 20): false,
	} {
		if got := olderThan(version, 6, 2); got != want {
			t.Errorf("%q is older than 6.2: %t; want %t", version, got, want)
		}
	}
}
