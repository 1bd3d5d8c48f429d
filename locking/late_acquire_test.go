package locking_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// acquiring matches the pieces of a request that call a script with the lock of a key.
func acquiring(key string) func([]byte) bool {
	return func(request []byte) bool {
		return redistest.IsScript(request) && bytes.Contains(request, []byte(lockOf(key)+"\r\n"))
	}
}

// impatientClients are the ways to configure a client that gives up on a server after a short time.
var impatientClients = map[string]func(*redis.Options){
	"default":               func(o *redis.Options) {},
	"deadlines":             func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	"deadlines, no retries": deadlines,
	"one connection": func(o *redis.Options) {
		o.PoolSize, o.MaxRetries, o.PoolTimeout = 1, 5, 100*time.Millisecond
	},
}

func TestAnAcquireThatArrivesLateLocksNothing(t *testing.T) {
	t.Parallel()
	for name, mod := range impatientClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			others := newSingle(t, server.Client(t), locking.SingleOptions{})
			proxy := redistest.NewProxy(t, server.Addr())
			client := server.Client(t, mod, func(o *redis.Options) {
				o.Addr, o.ReadTimeout = proxy.Addr(), 200*time.Millisecond
			})
			for _, keys := range [][]string{{"order:1"}, {"order:1", "order:2"}} {
				l, err := locking.NewSingle(client, locking.SingleOptions{})
				if err != nil {
					t.Fatal(err)
				}
				// The server knows the scripts and the client has connections from now on, however slow it is now.
				for warm := false; !warm; {
					warm = eventually(t, l, keys...).Release(t.Context()) == nil
				}
				held := proxy.Hold(acquiring("order:1"))
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				lease, err := l.Acquire(ctx, keys, locking.Options{})
				cancel()
				<-held.Caught
				if err == nil {
					release(t, lease) // of a further attempt
				}
				if err := l.Close(); err != nil { // it waits until what the attempt has left is taken back
					t.Error(err)
				}
				between := acquire(t, others, locking.Options{}, keys...)
				before, err := between.FenceOf(t.Context(), "order:1")
				if err != nil {
					t.Fatal(err)
				}
				if err := between.Renew(t.Context()); err != nil {
					t.Error(err)
				}
				release(t, between)
				held.Deliver()
				for _, key := range keys {
					if exists(t, admin, key) {
						t.Errorf("%s is locked without a holder: %s", key, admin.Get(t.Context(), lockOf(key)).Val())
					}
				}
				after := acquire(t, others, locking.Options{}, keys...)
				if token, err := after.FenceOf(t.Context(), "order:1"); err != nil || token <= before {
					t.Errorf("token %d after %d, %v", token, before, err)
				}
				release(t, after)
			}
		})
	}
}

func TestABatchThatArrivesLateLocksNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	patient := newSingle(t, server.Client(t), locking.SingleOptions{})
	// the server knows the scripts
	toAndFro(t, patient, func() bool { return count(t, admin, "commandstats", "cmdstat_evalsha") > 20 })
	proxy := redistest.NewProxy(t, server.Addr())
	l := newSingle(t, server.Client(t, deadlines, func(o *redis.Options) {
		o.Addr, o.ReadTimeout = proxy.Addr(), 300*time.Millisecond
	}), locking.SingleOptions{})
	batch := func(request []byte) bool {
		return redistest.IsScript(request) && bytes.Count(request, []byte("{late")) >= 3*3
	}
	held := proxy.Hold(batch)
	var callers sync.WaitGroup
	for stop := false; !stop; {
		for i := range 32 {
			callers.Go(func() {
				lease, err := l.Acquire(t.Context(), []string{fmt.Sprint("late", i)}, locking.Options{})
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil && !errors.Is(err, locking.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		select {
		case <-held.Caught:
			stop = true
		default:
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	held.Deliver()
	if left := admin.Keys(t.Context(), "*}").Val(); len(left) != 0 {
		t.Errorf("locked without a holder: %v", left)
	}
}

func TestALateMajorityLocksNothing(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"": false, "closed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := startNodes(t, 5)
			clients := admins(t, servers)
			proxies := make([]*redistest.Proxy, len(nodes))
			for i, n := range nodes {
				proxies[i] = redistest.NewProxy(t, n.Addr)
				n.Addr = proxies[i].Addr()
			}
			l := newRedlock(t, nodes,
				locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 250 * time.Millisecond})
			release(t, eventually(t, l, "order:1"))
			nowhere(t, clients, "order:1")
			l.AwaitReleases(patience) // no repeated release may be held in place of an acquire call
			held := make([]*redistest.Held, 3)
			for i := range held {
				held[i] = proxies[i].Hold(acquiring("order:1"))
			}
			failed := make(chan error, 1)
			go func() {
				_, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
				failed <- err
			}()
			for _, h := range held {
				<-h.Caught
			}
			if closes {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := <-failed; err == nil {
				t.Fatal("a lease of a minority")
			}
			for i := range held {
				if !closes {
					abandoned(t, clients[i], "order:1")
				}
			}
			if err := l.Close(); !closes && err != nil {
				t.Error(err)
			}
			var locked []int
			for i, h := range held {
				h.Deliver()
				if exists(t, clients[i], "order:1") {
					locked = append(locked, i)
				}
			}
			// Close waits for a minority of the nodes for 1.5 s only.
			if len(locked) == len(held) || len(locked) > 0 && !closes {
				t.Errorf("locked without a holder on nodes %v", locked)
			}
		})
	}
}

func TestAResumedServerLocksNoKeyWithoutAHolder(t *testing.T) {
	t.Parallel()
	const stop = 4500 * time.Millisecond
	for name, mod := range impatientClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			client := server.Client(t, mod)
			l := newSingle(t, client, locking.SingleOptions{})
			release(t, acquire(t, l, locking.Options{}, "order:1"))
			lease := acquire(t, l, locking.Options{}, "order:2")
			server.Pause()
			resumed := time.After(stop)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var callers sync.WaitGroup
			callers.Go(func() {
				if given, err := l.Acquire(ctx, []string{"order:1"}, locking.Options{}); err == nil {
					_ = given.Release(ctx)
				}
			})
			callers.Go(func() { _ = lease.Release(ctx) })
			<-resumed
			server.Resume()
			began := time.Now()
			for _, key := range []string{"order:1", "order:2"} {
				await(t, key+" is free", func() bool { return !exists(t, admin, key) })
			}
			callers.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			for _, key := range []string{"order:1", "order:2"} {
				if exists(t, admin, key) {
					t.Errorf("%s is locked without a holder", key)
				}
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// An errgroup ends its contexts with the error of another goroutine, and a lease that is lost with that of its last
// renewal.
func TestTheCauseOfACancellationIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"none": nil, "of the caller": errors.New("enough"), "an answer": fmt.Errorf("read order: %w", redis.Nil),
		"a dial": &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}, "a pool": redis.ErrPoolTimeout,
		"a client": redis.ErrClosed,
		"a loss":   &locking.LostError{Reason: locking.LossExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			proxy := redistest.NewProxy(t, server.Addr())
			l := newSingle(t, server.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr(), -1 }),
				locking.SingleOptions{})
			release(t, acquire(t, l, locking.Options{}, "order:2"))
			held := proxy.Hold(acquiring("order:1"))
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-held.Caught
				cancel(cause)
			}()
			_, err := l.Acquire(ctx, []string{"order:1"}, locking.Options{})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want context.Canceled", err)
			}
			held.Deliver()
			if err := l.Close(); err != nil { // it waits until what the attempt has left is taken back
				t.Error(err)
			}
			if exists(t, admin, "order:1") {
				t.Error("the key is locked without a holder")
			}
		})
	}
}

func TestOneLossIsNotAnothers(t *testing.T) {
	t.Parallel()
	for name, start := range overloaded {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, servers := start(t)
			lease := eventually(t, l, "order:1")
			for _, s := range servers {
				s.Pause()
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(&locking.LostError{Reason: locking.LossExpired}) })
			err := lease.Renew(ctx)
			for _, s := range servers {
				s.Resume()
			}
			if err == nil || errors.Is(err, locking.ErrLost) || lease.Err() != nil {
				t.Errorf("renewal: %v, lease: %v", err, lease.Err())
			}
			release(t, lease)
		})
	}
}
