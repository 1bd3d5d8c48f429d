// Package valkeyrie_test runs the lock suite of github.com/kvtools/valkeyrie against our lockers. It is a module of its own, because not
// every module proxy has valkeyrie: see scripts/interop-valkeyrie.sh.
package valkeyrie_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kvtools/valkeyrie/store"
	"github.com/kvtools/valkeyrie/testsuite"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestValkeyrieLocks(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, open func() store.Store) { testsuite.RunTestLock(t, open()) })
}

func TestValkeyrieLocksExpire(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, open func() store.Store) { testsuite.RunTestLockTTL(t, open(), open()) })
}

// forEachBackend runs a test over each kind of locker, on servers of its own. Stores that open returns see each other's locks.
func forEachBackend(t *testing.T, test func(t *testing.T, open func() store.Store)) {
	t.Helper()
	for _, nodes := range []int{1, 3, 5} {
		for _, gated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d servers, gate %v", nodes, gated), func(t *testing.T) {
				t.Parallel()
				servers := make([]*redistest.Server, nodes)
				for i := range servers {
					servers[i] = redistest.Start(t)
				}
				test(t, func() store.Store { return openStore(t, servers, gated) })
			})
		}
	}
}

// kv is a store whose locks are ours; values are plain Redis strings on the first server.
type kv struct {
	store.Store // nil: the lock suite calls nothing else

	values *redis.Client
	locker locking.Locker
	close  func() error
}

func openStore(t *testing.T, servers []*redistest.Server, gated bool) store.Store {
	t.Helper()
	s := &kv{values: servers[0].Client(t)}
	if len(servers) == 1 {
		client := redis.NewClient(&redis.Options{Addr: servers[0].Addr(), ContextTimeoutEnabled: true})
		single, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.locker, s.close = single, func() error { return errors.Join(single.Close(), client.Close()) }
	} else {
		var nodes []*redis.Options
		for _, server := range servers {
			nodes = append(nodes, &redis.Options{Addr: server.Addr()})
		}
		redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{Guard: locking.GuardOff, NodeTimeout: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s.locker, s.close = redlock, redlock.Close
	}
	if gated {
		s.locker = locking.NewGate(s.locker, locking.GateOptions{})
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Close ends the connection, as a crash would: what is locked by it is renewed no longer.
func (s *kv) Close() error { return s.close() }

func (s *kv) Get(ctx context.Context, key string, _ *store.ReadOptions) (*store.KVPair, error) {
	value, err := s.values.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, store.ErrKeyNotFound
	}
	return &store.KVPair{Key: key, Value: value, LastIndex: 1}, err
}

func (s *kv) NewLock(_ context.Context, key string, opts *store.LockOptions) (store.Locker, error) {
	return &lock{in: s, key: key, opts: *opts}, nil
}

// lock is one lock of a store.
type lock struct {
	in    *kv
	key   string
	opts  store.LockOptions
	lease *locking.Lease
}

func (l *lock) Lock(ctx context.Context) (<-chan struct{}, error) {
	lease, err := locking.Wait(ctx, l.in.locker, []string{l.key}, locking.Options{TTL: l.opts.TTL})
	if err != nil {
		return nil, err
	}
	l.lease = lease
	return lease.Done(), l.in.values.Set(ctx, l.key, l.opts.Value, 0).Err()
}

func (l *lock) Unlock(ctx context.Context) error {
	var err error
	if l.opts.DeleteOnUnlock {
		err = l.in.values.Del(ctx, l.key).Err()
	}
	return errors.Join(err, l.lease.Release(ctx))
}
