package locking_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// BenchmarkAcquireRelease compares a lease with the floor: what the canonical pattern costs with the bare client, SET
// NX PX and one compare-and-delete script, without a fencing token, a renewal or a holder's name.
//
//	go test -run '^$' -bench AcquireRelease -count 10 ./locking/
func BenchmarkAcquireRelease(b *testing.B) {
	for _, bench := range []struct {
		name string
		pair func(b *testing.B, client *redis.Client) func(ctx context.Context, key string) error
	}{
		{"floor", floorPair},
		{"single", singlePair},
		{"redlock", redlockPair},
	} {
		b.Run(bench.name+"/sequential", func(b *testing.B) {
			pair := bench.pair(b, redistest.Start(b).Client(b, deadlines))
			b.ReportAllocs()
			for b.Loop() {
				if err := pair(b.Context(), "order:1"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bench.name+"/parallel", func(b *testing.B) {
			pair := bench.pair(b, redistest.Start(b).Client(b, deadlines))
			var workers atomic.Int64
			b.SetParallelism(64)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				key := "order:" + strconv.FormatInt(workers.Add(1), 10) // no two contend
				for pb.Next() {
					if err := pair(b.Context(), key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func floorPair(_ *testing.B, client *redis.Client) func(ctx context.Context, key string) error {
	var last atomic.Int64
	return func(ctx context.Context, key string) error {
		value := strconv.FormatInt(last.Add(1), 10)
		if err := client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: locking.DefaultTTL}).Err(); err != nil {
			return err
		}
		return compareAndDelete.Run(ctx, client, []string{key}, value).Err()
	}
}

func singlePair(b *testing.B, client *redis.Client) func(ctx context.Context, key string) error {
	locker := newSingle(b, client, locking.SingleOptions{})
	return func(ctx context.Context, key string) error {
		lease, err := locker.Acquire(ctx, []string{key}, locking.Options{})
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// redlockPair locks on the given server and four others.
func redlockPair(b *testing.B, client *redis.Client) func(ctx context.Context, key string) error {
	_, nodes := startNodes(b, 4)
	locker := newRedlock(b, append(nodes, &redis.Options{Addr: client.Options().Addr}),
		locking.RedlockOptions{Guard: locking.GuardOff})
	return func(ctx context.Context, key string) error {
		lease, err := locker.Acquire(ctx, []string{key}, locking.Options{})
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}
