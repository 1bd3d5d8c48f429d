package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// lockServers starts servers for locks alone and returns a configuration that uses them.
func lockServers(t *testing.T, n int) ([]*redistest.Server, Config) {
	t.Helper()
	cfg := Config{Redis: Redis{Addr: redistest.Start(t).Addr()}, LockGuard: locking.GuardOff}
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Start(t)
		cfg.LockRedis.Nodes = append(cfg.LockRedis.Nodes, servers[i].Addr())
	}
	return servers, cfg
}

func TestLocksOnSeveralServersOutliveOneOfThem(t *testing.T) {
	t.Parallel()
	servers, cfg := lockServers(t, 3)
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan int64, 2)
	if err := Handle(w, "audit", Handler[order]{Keys: order.keys, Run: func(ctx context.Context, _ order) error {
		lease, _ := locking.FromContext(ctx)
		token, err := lease.Fence(ctx)
		tokens <- token
		return err
	}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Shutdown() }()
	client, err := NewClient(cfg.Redis)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	next := func() int64 {
		t.Helper()
		if _, err := client.Enqueue(t.Context(), "audit", order{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		select {
		case token := <-tokens:
			return token
		case <-t.Context().Done():
			t.Fatal("the task did not run")
			return 0
		}
	}
	first := next()
	servers[1].Kill()
	if second := next(); first <= 0 || second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

func TestAMajorityOfTheLockServersIsNeededAtTheStart(t *testing.T) {
	t.Parallel()
	servers, cfg := lockServers(t, 3)
	servers[0].Kill()
	servers[2].Kill()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := Handle(w, "audit", Handler[order]{Run: nothing, Keys: order.keys}); err != nil {
		t.Fatal(err)
	}
	err = w.Start(t.Context())
	if err == nil {
		_ = w.Shutdown()
		t.Fatal("started")
	}
	for _, part := range []string{"only 1 of 3", "no majority", servers[0].Addr(), servers[2].Addr(), "RAILTOKEN_LOCK_NODES"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func TestLockServersThatEvictAreRefusedWhateverIsAllowed(t *testing.T) {
	t.Parallel()
	servers, cfg := lockServers(t, 3)
	cfg.LockGuard, cfg.AllowEviction = locking.GuardConnect, true
	for _, s := range servers {
		if err := s.Client(t).ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
			t.Fatal(err)
		}
	}
	err := startWith(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "noeviction") || strings.Contains(err.Error(), "ALLOW_EVICTION") {
		t.Errorf("error %v, want that they evict, and no remedy that does not help", err)
	}
}

func TestLockServersThatAreOneAndTheSameAreNoMajority(t *testing.T) {
	t.Parallel()
	_, cfg := lockServers(t, 3)
	_, port, _ := strings.Cut(cfg.LockRedis.Nodes[0], ":")
	cfg.LockRedis.Nodes = []string{"127.0.0.1:" + port, "localhost:" + port, "127.0.0.2:" + port}
	err := startWith(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "only 1 of 3") || !strings.Contains(err.Error(), "the same server as 127.0.0.1:"+port) {
		t.Errorf("error %v, want that two of three are the same server", err)
	}
}

// startWith starts a worker that is to be refused.
func startWith(t *testing.T, cfg Config) error {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := Handle(w, "audit", Handler[order]{Run: nothing, Keys: order.keys}); err != nil {
		t.Fatal(err)
	}
	if err = w.Start(t.Context()); err == nil {
		_ = w.Shutdown()
	}
	return err
}
