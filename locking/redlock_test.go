package locking_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// unguarded are the options for servers that have just been started for a test. A busy machine is no reason for a node
// to fail.
var unguarded = locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 2 * time.Second}

// distant are the options for a test that tells a call that waits for a node from one that does not: see promptly.
var distant = locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 10 * time.Second}

func newRedlock(t testing.TB, nodes []*redis.Options, opts locking.RedlockOptions) *locking.Redlock {
	t.Helper()
	l, err := locking.NewRedlock(nodes, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// startNodes starts servers and returns how to connect to them.
func startNodes(t testing.TB, n int) ([]*redistest.Server, []*redis.Options) {
	t.Helper()
	testserver.LeaveToLong(t)
	servers, options := make([]*redistest.Server, n), make([]*redis.Options, n)
	for i := range servers {
		servers[i] = redistest.Start(t)
		options[i] = &redis.Options{Addr: servers[i].Addr()}
	}
	return servers, options
}

// virtualNodes returns how to connect to fake servers in virtual time.
func virtualNodes(t *testing.T, n int) []*redis.Options {
	t.Helper()
	options := make([]*redis.Options, n)
	for i := range options {
		_, client := redistest.Virtual(t)
		options[i] = client.Options()
	}
	return options
}

// backends makes each kind of locker on one kind of server.
var backends = map[string]struct {
	nodes int
	make  func(t *testing.T, nodes []*redis.Options) locking.Locker
}{
	"redlock of 3": {
		3,
		func(t *testing.T, nodes []*redis.Options) locking.Locker { return newRedlock(t, nodes, unguarded) },
	},
	"redlock of 5": {
		5,
		func(t *testing.T, nodes []*redis.Options) locking.Locker { return newRedlock(t, nodes, unguarded) },
	},
	"gate over single": {1, func(t *testing.T, nodes []*redis.Options) locking.Locker {
		client := redis.NewClient(nodes[0])
		t.Cleanup(func() { _ = client.Close() })
		return locking.NewGate(newSingle(t, client, locking.SingleOptions{}), locking.GateOptions{})
	}},
	"gate over redlock of 3": {3, func(t *testing.T, nodes []*redis.Options) locking.Locker {
		return locking.NewGate(newRedlock(t, nodes, unguarded), locking.GateOptions{})
	}},
	"gate over redlock of 5": {5, func(t *testing.T, nodes []*redis.Options) locking.Locker {
		return locking.NewGate(newRedlock(t, nodes, unguarded), locking.GateOptions{})
	}},
}

// conform runs the suite. Only what needs Harness.Lose may be skipped.
func conform(t *testing.T, h lockingtest.Harness) {
	t.Helper()
	run := h.Run
	h.Run = func(t *testing.T, test func(t *testing.T)) {
		t.Helper()
		t.Cleanup(func() {
			if t.Skipped() && (h.Lose != nil || strings.HasSuffix(t.Name(), "/TokensGrowWhileALeaseIsHandedOff")) {
				t.Error("skipped")
			}
		})
		if run == nil {
			test(t)
		} else {
			run(t, test)
		}
	}
	lockingtest.Run(t, h)
}

func TestBackendsConformOnRedis(t *testing.T) {
	t.Parallel()
	_, nodes := startNodes(t, 5)
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, lockingtest.Harness{
				Run:  computing,
				New:  func(t *testing.T) locking.Locker { return backend.make(t, nodes[:backend.nodes]) },
				Lose: func(t *testing.T, key string) { loseOn(t, nodes[:backend.nodes], key) },
			})
		})
	}
}

// loseOn deletes the lock of a key on all servers. It waits for those that have not granted it yet.
func loseOn(t *testing.T, nodes []*redis.Options, key string) {
	t.Helper()
	for _, o := range nodes {
		client := redis.NewClient(o)
		await(t, "the lock of "+key+" was deleted on "+o.Addr, func() bool {
			return client.Del(t.Context(), lockOf(key)).Val() == 1
		})
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

// In one process and behind one gate everything is decided in memory, or handed off. Lose is nil, because the gate
// refuses in memory what the servers would grant after a loss.
func TestOneGateConformsInVirtualTime(t *testing.T) { // not beside tests with timers, as it only computes
	for _, name := range []string{"gate over single", "gate over redlock of 3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gates sync.Map
			conform(t, lockingtest.Harness{Run: synctest.Test, New: func(t *testing.T) locking.Locker {
				gate, ok := gates.Load(t)
				if !ok {
					gate = backends[name].make(t, virtualNodes(t, backends[name].nodes))
					gates.Store(t, gate)
				}
				return gate.(locking.Locker)
			}})
		})
	}
}

// computing runs a test of the suite on real servers. One of them does not wait.
func computing(t *testing.T, test func(t *testing.T)) {
	if strings.HasSuffix(t.Name(), "/OneHolderAtATime") {
		locking.Compute(t)
	}
	test(t)
}

func TestBackendsConformInVirtualTime(t *testing.T) { // not beside tests with timers, as it only computes
	for name, backend := range backends {
		if backend.nodes == 5 { // three nodes take the same way, and real servers are five
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tests sync.Map
			nodesOf := func(t *testing.T) []*redis.Options {
				nodes, ok := tests.Load(t)
				if !ok {
					nodes = virtualNodes(t, backend.nodes)
					tests.Store(t, nodes)
				}
				return nodes.([]*redis.Options)
			}
			conform(t, lockingtest.Harness{
				Run:  synctest.Test,
				New:  func(t *testing.T) locking.Locker { return backend.make(t, nodesOf(t)) },
				Lose: func(t *testing.T, key string) { loseOn(t, nodesOf(t), key) },
			})
		})
	}
}
