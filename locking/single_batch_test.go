package locking_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// toAndFro takes and gives back keys of their own from many goroutines, until enough or for patience at most. Nothing
// may fail.
func toAndFro(t *testing.T, l locking.Locker, enough func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	var stop atomic.Bool
	var workers sync.WaitGroup
	for i := range 32 {
		key := fmt.Sprintf("order:%d", i)
		workers.Go(func() {
			var last int64
			for !stop.Load() {
				lease, err := l.Acquire(t.Context(), []string{key}, locking.Options{})
				if err != nil {
					t.Errorf("acquire %s: %v", key, err)
					return
				}
				token, err := lease.Fence(t.Context())
				if err != nil || token <= last {
					t.Errorf("token %d of %s after %d, error %v", token, key, last, err)
				}
				last = token
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("release %s: %v", key, err)
					return
				}
			}
		})
	}
	for !enough() {
		if time.Now().After(deadline) {
			t.Errorf("what was waited for did not come within %v", patience)
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	workers.Wait()
}

// count returns the first number of a line in a section of INFO, 0 when it is not there.
func count(t *testing.T, client *redis.Client, section, name string) (n int) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), section).Result()
	if err != nil {
		t.Error(err)
		return 0
	}
	for _, fields := range info {
		if stat, ok := fields[name]; ok {
			_, rest, _ := strings.Cut(stat, "=")
			_, _ = fmt.Sscan(strings.ReplaceAll(rest, ",", " "), &n)
		}
	}
	return n
}

func TestCallsThatWaitTogetherAreFewerCommands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t, deadlines)
	var pairs atomic.Int64
	l := newSingle(t, client, locking.SingleOptions{})
	toAndFro(t, counting{l, &pairs}, func() bool { return pairs.Load() > 2000 })
	if calls := count(t, server.Client(t), "commandstats", "cmdstat_evalsha"); int64(calls) > pairs.Load() {
		t.Errorf("%d script calls for %d leases and their releases", calls, pairs.Load())
	}
	if left := client.Keys(t.Context(), "*}").Val(); len(left) != 0 {
		t.Errorf("locks are left: %v", left)
	}
}

// counting counts the leases that a Locker gives.
type counting struct {
	locking.Locker
	n *atomic.Int64
}

func (c counting) Acquire(ctx context.Context, keys []string, opts locking.Options) (*locking.Lease, error) {
	lease, err := c.Locker.Acquire(ctx, keys, opts)
	if err == nil {
		c.n.Add(1)
	}
	return lease, err
}

// A node of a cluster refuses a script with keys of several slots, also when it has all of them.
func TestAClusterServerGetsUnbatchedCalls(t *testing.T) {
	t.Parallel()
	node := redistest.StartCluster(t, 1).Nodes()[0]
	admin := node.Client(t)
	var pairs atomic.Int64
	l := newSingle(t, node.Client(t, deadlines), locking.SingleOptions{})
	var from int64
	toAndFro(t, counting{l, &pairs}, func() bool {
		if from == 0 && count(t, admin, "errorstats", "errorstat_CROSSSLOT") > 0 {
			from = pairs.Load()
		}
		return from > 0 && pairs.Load() > from+1000
	})
	if refusals := count(t, admin, "errorstats", "errorstat_CROSSSLOT"); refusals == 0 || refusals > 10 {
		t.Errorf("%d calls were refused, want those of the first batches", refusals)
	}
}

func TestARepeatedBatchTakesEffectOnce(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			lost := replyLoss{kind: "*"} // the list of a batch
			l := newSingle(t, server.Client(t, lost.mod), locking.SingleOptions{})
			lost.next()
			toAndFro(t, l, func() bool { return strings.HasPrefix(lost.reply(), "*") })
			if left := server.Client(t).Keys(t.Context(), "*}").Val(); len(left) != 0 {
				t.Errorf("locks are left: %v", left)
			}
		})
	}
}

func TestBatchedReleasesWorkWithoutMemory(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t, deadlines)
	l := newSingle(t, client, locking.SingleOptions{})
	var leases []*locking.Lease
	for i := range 64 {
		leases = append(leases, eventually(t, l, fmt.Sprintf("mine:%d", i)))
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for i, lease := range leases {
		callers.Go(func() {
			if err := lease.Release(context.Background()); err != nil {
				t.Errorf("release: %v", err)
			}
		})
		callers.Go(func() {
			// One that comes after a release in the same batch is granted.
			other, err := l.Acquire(t.Context(), []string{fmt.Sprintf("other:%d", i)}, locking.Options{})
			switch {
			case err != nil && !errors.Is(err, locking.ErrUnavailable):
				t.Errorf("acquire: %v, want ErrUnavailable", err)
			case err == nil:
				if err := other.Release(context.Background()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	callers.Wait()
	if left := client.Keys(t.Context(), "*}").Val(); len(left) != 0 {
		t.Errorf("locks are left: %v", left)
	}
}

// A server that was made a replica says READONLY: the client must drop its connection, so that it looks for the master
// anew.
func TestConnectionsToANewReplicaAreDropped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var dials atomic.Int64
	client := server.Client(t, deadlines, func(o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error { dials.Add(1); return nil }
	})
	l := newSingle(t, client, locking.SingleOptions{})
	toAndFro(t, l, func() bool { return dials.Load() >= 2 }) // several callers were there at the same time
	if err := server.Client(t).Do(t.Context(), "REPLICAOF", "192.0.2.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	before := dials.Load()
	for began := time.Now(); dials.Load() < before+5; {
		var callers sync.WaitGroup
		for i := range 32 {
			callers.Go(func() {
				if _, err := l.Acquire(t.Context(), []string{fmt.Sprintf("order:%d", i)},
					locking.Options{}); !errors.Is(err, locking.ErrUnavailable) {
					t.Errorf("acquire: %v, want ErrUnavailable", err)
				}
			})
		}
		callers.Wait()
		if time.Since(began) > patience {
			t.Fatalf("%d connections after %v, %d before", dials.Load(), patience, before)
		}
	}
}
