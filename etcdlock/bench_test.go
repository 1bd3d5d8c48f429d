package etcdlock_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/locking"
)

const (
	benchTTL = 30 * time.Second
	callers  = 64
)

// BenchmarkUncontended is one caller that locks and unlocks a key.
func BenchmarkUncontended(b *testing.B) {
	addrs := sharedEtcd(b)
	b.Run("etcdlock", func(b *testing.B) {
		l := newLocker(b, addrs, etcdlock.Options{Prefix: "bench/"})
		for b.Loop() {
			lease, err := l.Acquire(b.Context(), []string{"order"}, locking.Options{TTL: benchTTL})
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("concurrency", func(b *testing.B) {
		session := newSession(b, newClient(b, addrs))
		for b.Loop() {
			mutex := concurrency.NewMutex(session, "bench-uncontended")
			if err := mutex.TryLock(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := mutex.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Benchmark64CallersOfOneKey is the time from one holder to the next, while 64 callers of a process want one key.
func Benchmark64CallersOfOneKey(b *testing.B) {
	addrs := sharedEtcd(b)
	b.Run("etcdlock", func(b *testing.B) {
		gate := locking.NewGate(newLocker(b, addrs, etcdlock.Options{Prefix: "bench/"}), locking.GateOptions{})
		crowd(b, func(int) func(context.Context) error {
			return func(ctx context.Context) error {
				return locking.Do(ctx, gate, []string{"hot"}, locking.Options{TTL: benchTTL},
					func(context.Context, *locking.Lease) error { return nil })
			}
		})
	})
	b.Run("concurrency", func(b *testing.B) {
		client := newClient(b, addrs)
		crowd(b, func(i int) func(context.Context) error {
			session := newSession(b, client) // mutexes of one session do not exclude each other
			mutex := concurrency.NewMutex(session, "bench-hot-"+strconv.Itoa(b.N))
			return func(ctx context.Context) error {
				if err := mutex.Lock(ctx); err != nil {
					return err
				}
				return mutex.Unlock(ctx)
			}
		})
	})
}

// crowd has 64 callers lock and unlock b.N times in all.
func crowd(b *testing.B, newCaller func(i int) func(context.Context) error) {
	b.Helper()
	all := make([]func(context.Context) error, callers)
	for i := range all {
		all[i] = newCaller(i)
	}
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, lock := range all {
		wg.Go(func() {
			for range left {
				if err := lock(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func newSession(b *testing.B, client *clientv3.Client) *concurrency.Session {
	b.Helper()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(benchTTL/time.Second)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	return session
}
