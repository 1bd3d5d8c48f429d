package locking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// promptly is far below what a call to a distant node takes that waits for a server which does not answer, and far
// above what any other takes on a busy machine.
const promptly = 4500 * time.Millisecond

// away are the ways in which a server can fail.
var away = map[string]func(*redistest.Server){"killed": (*redistest.Server).Kill, "paused": (*redistest.Server).Pause}

func TestAMinorityThatIsAwayDelaysNoCaller(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(s []*redistest.Server){
		"one paused":                func(s []*redistest.Server) { s[4].Pause() },
		"one killed":                func(s []*redistest.Server) { s[0].Kill() },
		"two paused":                func(s []*redistest.Server) { s[0].Pause(); s[3].Pause() },
		"two killed":                func(s []*redistest.Server) { s[1].Kill(); s[2].Kill() },
		"one paused and one killed": func(s []*redistest.Server) { s[2].Pause(); s[4].Kill() },
	} {
		for when, warm := range map[string]bool{"": true, ", before the first connection": false} {
			t.Run(name+when, func(t *testing.T) {
				t.Parallel()
				servers, nodes := startNodes(t, 5)
				l := newRedlock(t, nodes, distant)
				if warm {
					lease := acquire(t, l, locking.Options{}, "warm up")
					everywhere(t, admins(t, servers), "warm%20up")
					release(t, lease)
				}
				t.Cleanup(func() { // or the end of the Redlock waits for them
					for _, server := range servers {
						server.Resume()
						if server.PID() == 0 {
							server.Restart(t)
						}
					}
				})
				fail(servers)
				for range 20 {
					var lease *locking.Lease
					prompt(t, "acquire", func() (err error) {
						lease, err = l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
						return err
					})
					if lease == nil {
						return
					}
					prompt(t, "fence", func() error { _, err := lease.Fence(t.Context()); return err })
					prompt(t, "renew", func() error { return lease.Renew(t.Context()) })
					refused(t, l, "order:1")
					prompt(t, "release", func() error { return lease.Release(t.Context()) })
				}
			})
		}
	}
}

func TestAnAttemptWithoutAMajorityLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 5)
			clients := admins(t, servers[3:])
			l := newRedlock(t, nodes,
				locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 500 * time.Millisecond})
			release(t, acquire(t, l, locking.Options{}, "order:1"))
			for _, s := range servers[:3] {
				fail(s)
			}
			fastest := time.Hour
			for range 4 {
				began := time.Now()
				lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
				took := time.Since(began)
				if lease != nil {
					t.Fatal("a lease of a minority")
				}
				isClear(t, err, `acquire ["order:1"]`, nodes[0].Addr, nodes[1].Addr, nodes[2].Addr, "node 0", "node 1",
					"node 2")
				if !errors.Is(err, locking.ErrUnavailable) {
					t.Errorf("error %v, want ErrUnavailable", err)
				}
				if name == "killed" && took > 400*time.Millisecond || took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				fastest = min(fastest, took)
				nowhere(t, clients, "order:1")
			}
			if fastest > 250*time.Millisecond {
				t.Errorf("every attempt waits for nodes that do not answer, the fastest %v", fastest)
			}
		})
	}
}

func TestANodeThatComesBackTakesPartAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 5)
			l := newRedlock(t, nodes,
				locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 200 * time.Millisecond})
			release(t, eventually(t, l, "order:1"))
			fail(servers[0])
			fail(servers[1])
			release(t, eventually(t, l, "order:1"))
			for _, s := range servers[:2] {
				if name == "killed" {
					s.Restart(t)
				} else {
					s.Resume()
				}
			}
			servers[2].Kill()
			servers[3].Kill()
			release(t, eventually(t, l, "order:2"))
		})
	}
}

func TestAReleaseDoesNotAwaitAHangingNode(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 500 * time.Millisecond})
	// later the nodes can only be told a script's name
	release(t, acquire(t, l, locking.Options{}, "the scripts are known"))
	first := acquire(t, l, locking.Options{}, "order:1")
	second := acquire(t, l, locking.Options{TTL: 4 * time.Second}, "order:2")
	everywhere(t, clients, "order:1")
	everywhere(t, clients, "order:2")
	servers[2].Pause()
	prompt(t, "release", func() error { return first.Release(t.Context()) })
	others := []*redis.Client{clients[0], clients[1], clients[3], clients[4]}
	nowhere(t, others, "order:1")
	// The node is not asked any more now, so it does not learn of this release.
	<-time.After(600 * time.Millisecond)
	prompt(t, "release", func() error { return second.Release(t.Context()) })
	nowhere(t, others, "order:2")
	servers[2].Resume()
	nowhere(t, clients, "order:1")
	nowhere(t, clients, "order:2") // at the end of its TTL at the latest
}

func TestAGrantThatComesLateIsGivenBack(t *testing.T) {
	t.Parallel()
	t.Run("to a lease that was released", func(t *testing.T) {
		t.Parallel()
		servers, nodes := startNodes(t, 5)
		clients := admins(t, servers)
		l := newRedlock(t, nodes, distant)
		warm := acquire(t, l, locking.Options{}, "order:0")
		everywhere(t, clients, "order:0")
		release(t, warm)
		nowhere(t, clients, "order:0") // nothing is on its way, so what follows is sent at once
		servers[0].Pause()
		servers[3].Pause()
		lease := acquire(t, l, locking.Options{}, "order:1")
		prompt(t, "release", func() error { return lease.Release(t.Context()) })
		servers[0].Resume()
		servers[3].Resume()
		await(t, "the grant has come", func() bool {
			return clients[0].Exists(t.Context(), counterOf("order:1")).Val() == 1
		})
		nowhere(t, clients, "order:1")
	})
	t.Run("to an attempt that was cancelled", func(t *testing.T) {
		t.Parallel()
		servers, nodes := startNodes(t, 5)
		clients := admins(t, servers)
		l := newRedlock(t, nodes, distant)
		warm := acquire(t, l, locking.Options{}, "order:0")
		everywhere(t, clients, "order:0")
		release(t, warm)
		nowhere(t, clients, "order:0") // nothing is on its way, so what follows is sent at once
		for _, s := range servers[:3] {
			s.Pause()
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, []string{"order:1"}, locking.Options{})
			failed <- err
		}()
		everywhere(t, clients[3:], "order:1")
		began := time.Now()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) || time.Since(began) > promptly {
			t.Errorf("error %v after %v, want that of the context at once", err, time.Since(began))
		} else {
			isClear(t, err, `acquire ["order:1"]`)
		}
		nowhere(t, clients[3:], "order:1")
		for _, s := range servers[:3] {
			s.Resume()
		}
		await(t, "the grant has come", func() bool {
			return clients[0].Exists(t.Context(), counterOf("order:1")).Val() == 1
		})
		nowhere(t, clients, "order:1")
	})
	t.Run("to an attempt that had no answer in time", func(t *testing.T) {
		t.Parallel()
		servers, nodes := startNodes(t, 5)
		clients := admins(t, servers)
		l := newRedlock(t, nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 300 * time.Millisecond})
		warm := eventually(t, l, "order:0")
		everywhere(t, clients, "order:0")
		release(t, warm)
		nowhere(t, clients, "order:0") // nothing is on its way, so what follows is sent at once
		for _, s := range servers[:3] {
			s.Pause()
		}
		if _, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{}); !errors.Is(err, locking.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
		for _, s := range servers[:3] {
			s.Resume()
		}
		await(t, "the grant has come", func() bool {
			return clients[0].Exists(t.Context(), counterOf("order:1")).Val() == 1
		})
		nowhere(t, clients, "order:1") // well before the TTL of 30 s
		release(t, eventually(t, l, "order:1"))
	})
}

func TestCloseEndsCallsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	l := newRedlock(t, nodes, unguarded)
	servers[0].Pause()
	var crowd sync.WaitGroup
	var held atomic.Int64
	for g := range 20 {
		crowd.Go(func() {
			for {
				lease, err := l.Acquire(t.Context(), []string{fmt.Sprint("order:", g)}, locking.Options{})
				if errors.Is(err, redis.ErrClosed) {
					return
				}
				if err != nil {
					continue
				}
				held.Add(1)
				_ = lease.Release(t.Context())
			}
		})
	}
	await(t, "many leases", func() bool { return held.Load() > 200 })
	began := time.Now()
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	crowd.Wait()
	if took := time.Since(began); took > 3*time.Second { // a release that is tried again and again takes 5s
		t.Errorf("it took %v until everybody knew", took)
	}
	_, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
	isClear(t, err, "closed")
	if errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("error %v says that it is worth trying again", err)
	}
}

// Beside thousands of leases on a busy machine renewals ran out of time while they were queued, were sent all the same,
// and kept those that were made instead from being answered in time.
func TestAnAbandonedRenewalIsNeverSent(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	lease := acquire(t, l, locking.Options{}, "order:1")
	everywhere(t, clients, "order:1")
	if err := lease.Renew(t.Context()); err != nil { // the scripts are known
		t.Fatal(err)
	}
	before := calls(t, clients)
	for _, s := range servers {
		s.Pause()
	}
	giveUp := func(call func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := call(ctx); err == nil {
			t.Error("an answer of servers that are paused")
		}
	}
	const renewals = 30
	for range 1 + renewals { // the first is on its way, the others are queued behind it
		giveUp(lease.Renew)
	}
	for _, s := range servers {
		s.Resume()
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	nowhere(t, clients, "order:1")
	for i, n := range calls(t, clients) {
		if n-before[i] >= renewals {
			t.Errorf("node %d was sent %d calls after all but a few were given up", i, n-before[i])
		}
	}
}
