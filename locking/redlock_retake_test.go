package locking_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestARollingRestartCostsNoLease(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	const ttl = guardedTTL
	opts, redlock := locking.Options{TTL: ttl}, locking.RedlockOptions{MaxTTL: ttl, NodeTimeout: ttl / 4}
	holder, rival := newRedlock(t, nodes, redlock), newRedlock(t, nodes, redlock)
	joined(t, holder, clients)
	lease := acquire(t, holder, opts, "order:1")
	token := fence(t, lease)
	everywhere(t, clients, "order:1")

	owner := clients[0].Get(t.Context(), lockOf("order:1")).Val()
	over, attempts := make(chan struct{}), 0
	var trying sync.WaitGroup
	trying.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if second, err := rival.Acquire(t.Context(), []string{"order:1"}, opts); err == nil {
				t.Error("a second holder")
				_ = second.Release(t.Context())
			}
			attempts++
		}
	})
	for i, s := range servers {
		s.Kill()
		s.Restart(t)
		await(t, "the server that has restarted has the lock again", func() bool {
			if err := lease.Err(); err != nil {
				close(over)
				t.Fatalf("lost at restart %d: %v", i+1, err)
			}
			return owner == clients[i].Get(t.Context(), lockOf("order:1")).Val()
		})
		if got := counters(t, clients[i:i+1], "order:1")[0]; got < token {
			t.Errorf("the counter of node %d is %d after its restart, the token is %d", i, got, token)
		}
	}
	close(over)
	trying.Wait()
	if got := fence(t, lease); got != token {
		t.Errorf("token %d after the restarts, %d before", got, token)
	}
	release(t, lease)
	nowhere(t, clients, "order:1")
	if next := fence(t, eventuallyWith(t, rival, opts, "order:1")); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	t.Logf("%d attempts of another holder", attempts)
}

func TestARenewalRetakesFreeLocks(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, c *redis.Client, token int64){
		"data lost": func(t *testing.T, c *redis.Client, _ int64) {
			do(t, c, "DEL", lockOf("order:1"), counterOf("order:1"))
		},
		"lock lost": func(t *testing.T, c *redis.Client, _ int64) { do(t, c, "DEL", lockOf("order:1")) },
		"others had it meanwhile": func(t *testing.T, c *redis.Client, token int64) {
			do(t, c, "SET", counterOf("order:1"), token+1000)
			do(t, c, "DEL", lockOf("order:1"))
		},
	} {
		for _, mode := range []locking.GuardMode{locking.GuardOff, locking.GuardStrict} {
			t.Run(name+map[locking.GuardMode]string{locking.GuardStrict: ", strict"}[mode], func(t *testing.T) {
				t.Parallel()
				servers, nodes := startNodes(t, 5)
				clients := admins(t, servers)
				opts, ttl := unguarded, locking.DefaultTTL
				if mode == locking.GuardStrict {
					opts, ttl = guarded(mode), guardedMaxTTL
					trusted(t, clients)
				}
				l := newRedlock(t, nodes, opts)
				joined(t, l, clients)
				lease := acquire(t, l, locking.Options{TTL: ttl}, "order:1")
				token := fence(t, lease)
				everywhere(t, clients, "order:1")
				for range 3 { // each of the first three is lost once: more than a majority in all
					for _, c := range clients[:3] {
						lose(t, c, token)
						if err := lease.Renew(t.Context()); err != nil {
							t.Fatal(err)
						}
						everywhere(t, clients, "order:1")
						if left := c.PTTL(t.Context(), lockOf("order:1")).Val(); left < ttl/2 {
							t.Errorf("the lock is taken again for %v, want %v", left, ttl)
						}
					}
				}
				for i, counter := range counters(t, clients, "order:1") {
					if counter < token {
						t.Errorf("the counter of node %d is %d, the token %d", i, counter, token)
					}
				}
				if got := fence(t, lease); got != token {
					t.Errorf("token %d, it was %d", got, token)
				}
				release(t, lease)
				nowhere(t, clients, "order:1")
				if next := fence(t, eventuallyWith(t, l, locking.Options{TTL: ttl}, "order:1")); next <= token {
					t.Errorf("token %d after %d", next, token)
				}
			})
		}
	}
}

func TestARenewalTakesNoLockFromAnother(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	lease := acquire(t, l, locking.Options{Notify: time.Minute}, "order:1")
	fence(t, lease)
	everywhere(t, clients, "order:1")
	do(t, clients[0], "SET", lockOf("order:1"), "another holder")
	do(t, clients[1], "SET", lockOf("order:1"), "another holder")
	for range 3 {
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range clients[:2] {
		if got := c.Get(t.Context(), lockOf("order:1")).Val(); got != "another holder" {
			t.Errorf("the lock of another holder is %q", got)
		}
		if got := c.Exists(t.Context(), lockOf("order:1")+":notify").Val(); got != 0 {
			t.Error("a renewal subscribes to the release")
		}
	}
	do(t, clients[1], "DEL", lockOf("order:1"))
	await(t, "taken where another holder has left", func() bool {
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		return exists(t, clients[1], "order:1")
	})
	do(t, clients[2], "SET", lockOf("order:1"), "another holder")
	// the answer of the node that has it again may be on its way
	await(t, "renewed with the lock on 3 of 5 nodes", func() bool {
		err := lease.Renew(t.Context())
		if errors.Is(err, locking.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	release(t, lease)
}

func TestARenewalBesideARetakeLosesNoLease(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	proxy := redistest.NewProxy(t, nodes[0].Addr)
	nodes[0].Addr = proxy.Addr()
	l := newRedlock(t, nodes, unguarded)
	joined(t, l, clients)
	lease := acquire(t, l, locking.Options{}, "order:1")
	fence(t, lease)
	everywhere(t, clients, "order:1")
	held := proxy.Hold(acquireCalls(t))
	takesAgain(t, lease, clients[0], held)
	do(t, clients[1], "SET", lockOf("order:1"), "another holder")
	renewed, before := make(chan error, 1), calls(t, clients[1:2])[0]
	// is sent behind the call that is held, and asks for a smaller counter
	go func() { renewed <- lease.Renew(t.Context()) }()
	await(t, "the renewal is sent", func() bool { return calls(t, clients[1:2])[0] > before })
	held.Deliver()
	if err := <-renewed; errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	await(t, "renewed with the lock on 2 of 3 nodes", func() bool { return lease.Renew(t.Context()) == nil })
	release(t, lease)
}

// An operator who deletes a lock on a majority ends the lease, as before: a renewal makes no majority out of nothing.
func TestALostMajorityIsNotRetaken(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	lease := acquire(t, l, locking.Options{}, "order:1")
	fence(t, lease)
	everywhere(t, clients, "order:1")
	for _, c := range clients[:3] {
		do(t, c, "DEL", lockOf("order:1"))
	}
	if err := lease.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	nowhere(t, clients[:3], "order:1")
	_ = lease.Release(t.Context())
	nowhere(t, clients, "order:1")
}

func TestALossNamesTheNodesThatLostIt(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"the third is away": true, "the third has lost it too": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 5)
			clients := admins(t, servers)
			l := newRedlock(t, nodes,
				locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 500 * time.Millisecond})
			lease := acquire(t, l, locking.Options{TTL: 2 * time.Second}, "order:1")
			fence(t, lease)
			everywhere(t, clients, "order:1")
			servers[3].Pause() // it does not answer for a while
			renewed := lease.ValidUntil().Add(time.Second)
			await(t, "renewed without a node", func() bool { return lease.ValidUntil().After(renewed) })
			servers[3].Resume()
			await(t, "renewed on the node again", func() bool {
				return lease.Renew(t.Context()) == nil &&
					clients[3].PTTL(t.Context(), lockOf("order:1")).Val() > 1500*time.Millisecond
			})
			for _, c := range clients[:2] {
				do(t, c, "SET", lockOf("order:1"), "another holder")
			}
			if away {
				servers[2].Kill()
			} else {
				do(t, clients[2], "SET", lockOf("order:1"), "another holder")
			}
			loss := lost(t, lease)
			const forgotten = "does not have this lock"
			for i, part := range []string{forgotten, forgotten, map[bool]string{true: "refused", false: forgotten}[away]} {
				named := fmt.Sprintf("node %d (%s): ", i, servers[i].Addr())
				if !strings.Contains(loss.Error(), named) || !strings.Contains(loss.Error(), part) {
					t.Errorf("%v does not say %q and %q", loss, named, part)
				}
			}
			for _, well := range servers[3:] {
				if strings.Contains(loss.Error(), well.Addr()) {
					t.Errorf("%v names a node that is well", loss)
				}
			}
		})
	}
}

func TestALateRetakeLocksNothing(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, distant)
	const rounds = 10
	late := 0 // retakes that came after the release
	for round := 0; late < rounds; round++ {
		if round == 3*rounds {
			t.Fatalf("a retake came after the release in %d of %d rounds, want %d", late, round, rounds)
		}
		lease := acquire(t, l, locking.Options{}, "order:1")
		token := fence(t, lease)
		everywhere(t, clients, "order:1")
		do(t, clients[0], "SET", lockOf("order:1"), "another holder")
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		// the loss is known when it is asked for the lock alone
		for before := calls(t, clients[:1])[0]; calls(t, clients[:1])[0] < before+2; {
			if err := lease.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		do(t, clients[0], "DEL", lockOf("order:1"))
		servers[0].Pause()
		if err := lease.Renew(t.Context()); err != nil { // takes it again, once the server goes on
			t.Fatal(err)
		}
		prompt(t, "release", func() error { return lease.Release(t.Context()) })
		servers[0].Resume()
		// On a busy machine the server may have been slow before, and was not asked.
		for began := time.Now(); time.Since(began) < time.Second; <-time.After(time.Millisecond) {
			if counters(t, clients[:1], "order:1")[0] > token {
				late++
				break
			}
		}
		nowhere(t, clients, "order:1")
	}
}
