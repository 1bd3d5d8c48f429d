package pglock_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// These are for a change of this package. The benchmark of the project compares it with others.

func newGate(b *testing.B) locking.Locker {
	b.Helper()
	d := newDatabase(b)
	return locking.NewGate(d.locker(b, pglock.Options{Listen: d.url}), locking.GateOptions{})
}

// BenchmarkUncontended takes and releases a lock that nothing else wants.
func BenchmarkUncontended(b *testing.B) {
	gate := newGate(b)
	for i := 0; b.Loop(); i++ {
		lease, err := gate.Acquire(b.Context(), []string{fmt.Sprint("key", i)}, locking.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
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
				if err == nil {
					err = lease.Release(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
