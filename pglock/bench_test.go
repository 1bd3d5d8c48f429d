package pglock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// contestant takes and releases a lock once.
type contestant func(ctx context.Context, key int) error

// contestants are what the benchmarks compare, each with the same number of connections.
func contestants(b *testing.B) []struct {
	name string
	lock contestant
} {
	b.Helper()
	d := newDatabase(b)
	pooled := func(l locking.Locker) contestant {
		return func(ctx context.Context, key int) error {
			lease, err := locking.Wait(ctx, l, []string{fmt.Sprint("key", key)}, locking.Options{})
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	const connections = 70 // a session for each of the callers that wait for an advisory lock
	newOne := func(listen string) pglock.Locker {
		db := d.open(b)
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return newLocker(b, db, pglock.Options{Listen: listen})
	}
	db := d.open(b)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return []struct {
		name string
		lock contestant
	}{
		{"advisory", func(ctx context.Context, key int) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
				return err
			}
			_, err = conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", key)
			return err
		}},
		{"pglock", pooled(newOne(d.url))},
		{"gate", pooled(locking.NewGate(newOne(d.url), locking.GateOptions{}))},
	}
}

// BenchmarkUncontended takes and releases a lock that nothing else wants.
func BenchmarkUncontended(b *testing.B) {
	for _, c := range contestants(b) {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := c.lock(b.Context(), i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkContended has 64 callers of one process that want the same key.
func BenchmarkContended(b *testing.B) {
	const callers = 64
	for _, c := range contestants(b) {
		b.Run(c.name, func(b *testing.B) {
			var left atomic.Int64
			left.Store(int64(b.N))
			done := make(chan error, callers)
			b.ResetTimer()
			for range callers {
				go func() {
					for left.Add(-1) >= 0 {
						if err := c.lock(b.Context(), 0); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range callers {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
		})
	}
}
