package locking_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// virtualClients returns clients of a fake Redis in virtual time, one Redis for each test.
func virtualClients() func(t *testing.T) *redis.Client {
	var servers sync.Map
	return func(t *testing.T) *redis.Client {
		m, ok := servers.Load(t)
		if !ok {
			m, _ = redistest.Virtual(t)
			servers.Store(t, m)
		}
		return redistest.VirtualClient(t, m.(*miniredis.Miniredis))
	}
}

func newSingle(t testing.TB, client redis.UniversalClient, opts locking.SingleOptions) *locking.Single {
	t.Helper()
	l, err := locking.NewSingle(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// singleHarness returns the harness of a Single with clients of one Redis.
func singleHarness[C redis.UniversalClient](client func(t *testing.T) C) lockingtest.Harness {
	return lockingtest.Harness{
		New: func(t *testing.T) locking.Locker { return newSingle(t, client(t), locking.SingleOptions{}) },
		Lose: func(t *testing.T, key string) {
			if n, err := client(t).Del(t.Context(), lockOf(key)).Result(); n != 1 || err != nil {
				t.Fatalf("%d locks of %q were deleted: %v", n, key, err)
			}
		},
	}
}

func TestSingleConformsOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conform(t, singleHarness(func(t *testing.T) *redis.Client { return server.Client(t) }))
}

func TestSingleConformsOnRedisCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	conform(t, singleHarness(func(t *testing.T) *redis.ClusterClient { return cluster.Client(t) }))
}

func TestSingleConformsInVirtualTime(t *testing.T) { // not beside tests with timers, as it only computes
	h := singleHarness(virtualClients())
	h.Run = synctest.Test
	conform(t, h)
}

func TestAClientThatCannotKeepLocksIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "192.0.2.1:6379", "b": "192.0.2.2:6379"}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, tc := range map[string]struct {
		client redis.UniversalClient
		parts  []string
	}{
		"a ring":           {ring, []string{"ring", "*redis.ClusterClient", "NewRedlock"}},
		"nil":              {nil, []string{"nil client", "*redis.Client"}},
		"a nil client":     {(*redis.Client)(nil), []string{"nil client (*redis.Client)"}},
		"a nil of cluster": {(*redis.ClusterClient)(nil), []string{"nil client (*redis.ClusterClient)"}},
		"a nil ring":       {(*redis.Ring)(nil), []string{"nil client (*redis.Ring)"}},
	} {
		l, err := locking.NewSingle(tc.client, locking.SingleOptions{FenceTTL: 1})
		if l != nil {
			t.Errorf("%s: a locker", name)
		}
		isClear(t, err, append(tc.parts, "FenceTTL")...) // every fault at once
	}
}
