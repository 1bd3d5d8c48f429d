package redistest

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// virtualAddr is an address literal, so that nothing asks a resolver, whose goroutines live outside the bubble.
const virtualAddr = "127.0.0.1:6379"

// Virtual returns a fake Redis and a client of it that live on the virtual clock of the synctest bubble around the test. They
// talk over pipes in memory, with no port or socket. A key with a TTL expires at exactly its virtual time, and TIME in a script
// follows the same clock. Both are closed at the end of the bubble.
//
// Outside a bubble they run on real time. The fake knows one node and no persistence, evicts nothing, and is not a measure
// for speed; what a real server does under a crash is a question for [Start].
func Virtual(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	tb.Cleanup(m.Close)
	// It has a server to hook into once somebody has dialed.
	conn, err := m.Dial()
	if err != nil {
		tb.Fatal(err)
	}
	m.Server().SetPreHook(answerIdle(m))
	_ = conn.Close()
	return m, VirtualClient(tb, m)
}

// VirtualClient returns one more client of a fake Redis made by [Virtual], closed at the end of the test. Each mod may change its
// options first. After m.Close its dials are refused, as those to a server that has crashed.
func VirtualClient(tb testing.TB, m *miniredis.Miniredis, mod ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	opt := &redis.Options{
		Addr: virtualAddr, Dialer: dialer(m), Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, PoolSize: manyConns, MaxRetries: noRetries,
	}
	for _, f := range mod {
		f(opt)
	}
	return closing(tb, redis.NewClient(opt))
}

// VirtualCluster returns a client that takes a fake Redis made by [Virtual] for a Redis Cluster of one node, closed at the end of the test.
func VirtualCluster(tb testing.TB, m *miniredis.Miniredis) *redis.ClusterClient {
	tb.Helper()
	return closing(tb, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{virtualAddr}, Dialer: dialer(m), Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, PoolSize: manyConns, MaxRedirects: noRetries,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: clusterSlots - 1, Nodes: []redis.ClusterNode{{Addr: virtualAddr}}}}, nil
		},
	}))
}

// manyConns is so many that nobody waits for a connection: go-redis keeps the timers of callers that wait for one in a pool of the whole
// process, and a timer must not go from one bubble to another.
const manyConns = 4096

// noRetries has go-redis try a command once. Its PubSub would sleep between two attempts with a mutex that another goroutine waits for, which
// stops the virtual time; and attempts without a pause crash the race detector, whose runtime lets two goroutines of a bubble run timers
// that have expired already with one state.
const noRetries = -1

// dialer returns what connects to a fake Redis.
func dialer(m *miniredis.Miniredis) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		// miniredis would start anew on a dial after Close.
		if m.Ctx.Err() != nil {
			return nil, fmt.Errorf("redistest: the virtual server is closed: %w", syscall.ECONNREFUSED)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		conn, err := m.Dial()
		if err != nil {
			return nil, err
		}
		return newBuffered(conn), nil
	}
}
