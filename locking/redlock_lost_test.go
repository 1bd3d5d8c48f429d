package locking_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

func TestALeaseLivesWithItsMajority(t *testing.T) {
	t.Parallel()
	for name, fail := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 5)
			l := newRedlock(t, nodes, unguarded)
			lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{TTL: locking.MinTTL})
			if err != nil {
				t.Fatal(err)
			}
			until := lease.ValidUntil().Add(2 * time.Second)
			fail(servers[0])
			fail(servers[1])
			await(t, "renewed for 2s", func() bool {
				if err := lease.Err(); err != nil {
					t.Fatalf("lost with a majority alive: %v", err)
				}
				return lease.ValidUntil().After(until)
			})
			fail(servers[2])
			failed := time.Now()
			if loss := lost(t, lease); loss.Reason != locking.LossExpired || loss.Err == nil {
				t.Errorf("lost: %v, want because it could not be renewed, and why", loss)
			}
			if took := time.Since(failed); took > 2*time.Second {
				t.Errorf("the lease of 1s was lost %v after its majority", took)
			}
		})
	}
}

func TestALeaseIsLostWithItsMajority(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	lease := acquire(t, l, locking.Options{}, "order:1")
	everywhere(t, clients, "order:1")
	take := func(c *redis.Client) {
		do(t, c, "DEL", lockOf("order:1"))
		do(t, c, "SET", lockOf("order:1"), "another holder")
	}
	take(clients[1])
	take(clients[4])
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatalf("renew with the lock on 3 of 5 nodes: %v", err)
	}
	take(clients[2])
	err := lease.Renew(t.Context())
	for began := time.Now(); err != nil && !errors.Is(err, locking.ErrLost) && time.Since(began) < patience; {
		// the one before has met a call that takes the lock again on a node, and proves nothing
		err = lease.Renew(t.Context())
	}
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew with the lock on 2 of 5 nodes: %v, want ErrLost", err)
	}
	if loss := lost(t, lease); loss.Reason != locking.LossTaken {
		t.Errorf("lost: %v, want because it is another's", loss)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	nowhere(t, []*redis.Client{clients[0], clients[3]}, "order:1")
	for _, i := range []int{1, 2, 4} {
		if got := clients[i].Get(t.Context(), lockOf("order:1")).Val(); got != "another holder" {
			t.Errorf("the lock on node %d is %q after the release, want that of the other holder", i, got)
		}
	}
}
