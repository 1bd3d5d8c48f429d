package worker

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/preflight"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

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

// unusedAddr returns an address where unusedAddr listens.
func unusedAddr(t testing.TB) string {
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

func TestUnreachableRedisIsNamedInTime(t *testing.T) {
	t.Parallel()
	here, err := embeddedredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	gone := unusedAddr(t)
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
			if took := time.Since(began); took > preflight.Timeout+5*time.Second {
				t.Errorf("it took %v to find out; the bound is %v", took, preflight.Timeout)
			}
		})
	}
}

func TestUnreachableRedisKeepsItsCause(t *testing.T) {
	t.Parallel()
	err := starts(t, Config{Redis: Redis{Addr: unusedAddr(t)}})
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
		err := preflight.Check(t.Context(), c, preflight.Needs{Locks: true}, log)
		wantParts(t, err, "cannot be used", "is it running")
		if took := time.Since(began); took > preflight.Timeout {
			t.Errorf("given up after %v; want at most %v", took, preflight.Timeout)
		}
	})
}

func TestPreflightEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := idle(t, Config{Redis: Redis{Addr: unusedAddr(t)}})
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
	if !strings.Contains(text, "INFO is unavailable") || !strings.Contains(text, server.Addr()) {
		t.Errorf("no warning in the log:\n%s", text)
	}
	wantNoPassword(t, "the log", text)
}
