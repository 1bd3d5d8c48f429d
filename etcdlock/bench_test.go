package etcdlock_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/locking"
)

// These are for a change of this package. The benchmark of the project compares it with others.

func newGate(b *testing.B) locking.Locker {
	b.Helper()
	return locking.NewGate(newLocker(b, sharedEtcd(b), etcdlock.Options{Prefix: "bench/"}), locking.GateOptions{})
}

// BenchmarkUncontended takes and releases a lock that nothing else wants.
func BenchmarkUncontended(b *testing.B) {
	gate := newGate(b)
	for i := 0; b.Loop(); i++ {
		lease, err := gate.Acquire(b.Context(), []string{strconv.Itoa(i)}, locking.Options{})
		if err != nil {
			b.Fatal(err)
		}
		release(b, lease)
	}
}

// BenchmarkContended has 64 callers of one process that want the same key.
func BenchmarkContended(b *testing.B) {
	gate := newGate(b)
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range left {
				lease, err := locking.Wait(b.Context(), gate, []string{"key"}, locking.Options{})
				if err != nil {
					b.Error(err)
					return
				}
				release(b, lease)
			}
		})
	}
	all.Wait()
}
