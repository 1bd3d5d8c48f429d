package locking_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestTokensNeverGoBackWithAFailover(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]int{"": 1, "blocks": 16} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake, client := redistest.Virtual(t)
			l := newSingle(t, client, locking.SingleOptions{})
			now := time.Now()
			fake.SetTime(now)
			opts := locking.Options{}.WithBlock(block)
			lease := acquire(t, l, opts, "order:1", "order:2")
			before := fence(t, lease) + int64(block) - 1
			release(t, lease)
			fake.FlushAll() // what the replica had not received yet
			fake.SetTime(now.Add(-3 * time.Second))
			for range 3 {
				lease = acquire(t, l, opts, "order:1")
				if token := fence(t, lease); token <= before {
					t.Fatalf("token %d after %d", token, before)
				}
				before = fence(t, lease) + int64(block) - 1
				release(t, lease)
			}
			fake.SetTime(now.Add(time.Minute)) // and they follow the clock again
			lease = acquire(t, l, opts, "order:1")
			if token := fence(t, lease); token != now.Add(time.Minute).UnixMicro() {
				t.Errorf("token %d, want the clock", token)
			}
			release(t, lease)
		})
	}
}

// tokenLimit is where a token is refused.
const tokenLimit = 1 << 53

func TestACounterBeyondTokensIsRefused(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	single := newSingle(t, servers[0].Client(t, deadlines), locking.SingleOptions{})
	redlock := newRedlock(t, nodes, unguarded)
	for i, counter := range []int64{tokenLimit - 1, tokenLimit, tokenLimit + 1000, 1<<62 + 1} {
		key := fmt.Sprint("bad:", i)
		do(t, clients[0], "SET", counterOf(key), counter)
		for _, keys := range [][]string{{key}, {"good", key}} {
			lease, err := single.Acquire(t.Context(), keys, locking.Options{})
			if lease != nil {
				t.Fatalf("a token after %d", counter)
			}
			isClear(t, err, key, "2^53", "delete the counter")
			if errors.Is(err, locking.ErrUnavailable) {
				t.Errorf("%v says that trying again may help", err)
			}
			nowhere(t, clients[:1], key)
			nowhere(t, clients[:1], "good")
		}
		// On several servers the one with that counter has no vote.
		do(t, clients[0], "SET", counterOf(key), counter)
		lease := eventually(t, redlock, key)
		near(t, fence(t, lease))
		for range 3 {
			if err := lease.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for node, got := range counters(t, clients[1:], key) {
			if got >= tokenLimit {
				t.Errorf("counter %d has spread to node %d", got, node+1)
			}
		}
		release(t, lease)
		do(t, clients[1], "SET", counterOf(key), counter)
		_, err := redlock.Acquire(t.Context(), []string{key}, locking.Options{})
		isClear(t, err, "node 0 ("+servers[0].Addr(), "node 1 ("+servers[1].Addr(), "2^53")
		if strings.Contains(err.Error(), servers[2].Addr()) {
			t.Errorf("%v names a node that is well", err)
		}
		nowhere(t, clients, key)
		for name, l := range map[string]locking.Locker{"single": single, "redlock": redlock} {
			other := eventually(t, l, fmt.Sprintf("%s:%d", name, i))
			near(t, fence(t, other))
			release(t, other)
		}
	}
}

// A counter that no clock shows, but that is in range, stays that of its key.
func TestAWrongCounterStaysWithItsKey(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	for name, l := range map[string]locking.Locker{
		"single":  newSingle(t, servers[0].Client(t, deadlines), locking.SingleOptions{}),
		"redlock": newRedlock(t, nodes, unguarded),
	} {
		for _, c := range clients {
			do(t, c, "SET", counterOf(name), int64(tokenLimit-1000))
		}
		lease := eventually(t, l, name)
		if token := fence(t, lease); token <= tokenLimit-1000 {
			t.Errorf("%s: token %d", name, token)
		}
		release(t, lease)
		other := eventually(t, l, name+" other")
		near(t, fence(t, other))
		release(t, other)
	}
}

// near checks that a token is about that of the clock.
func near(t testing.TB, token int64) {
	t.Helper()
	if off := time.Since(time.UnixMicro(token)).Abs(); off > time.Minute {
		t.Errorf("token %d is %v from the clock", token, off)
	}
}
