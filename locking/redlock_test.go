package locking_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// unguarded are the options for servers that have just been started for a test. A busy machine is no reason for a node to fail.
var unguarded = locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 2 * time.Second}

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

func TestRedlockConformsOnRedis(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			t.Parallel()
			_, nodes := startNodes(t, n)
			lockingtest.Run(t, lockingtest.Harness{New: func(t *testing.T) locking.Locker {
				return newRedlock(t, nodes, unguarded)
			}})
		})
	}
}

func TestRedlockConformsInVirtualTime(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			t.Parallel()
			var tests sync.Map
			lockingtest.Run(t, lockingtest.Harness{
				Run: synctest.Test,
				New: func(t *testing.T) locking.Locker {
					nodes, ok := tests.Load(t)
					if !ok {
						nodes = virtualNodes(t, n)
						tests.Store(t, nodes)
					}
					return newRedlock(t, nodes.([]*redis.Options), unguarded)
				},
			})
		})
	}
}
