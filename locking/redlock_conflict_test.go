package locking_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

func TestSeveralKeysNeedOneMajority(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 5)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	for _, c := range clients[1:4] {
		do(t, c, "SET", lockOf("order:2"), "another holder", "PX", 60_000)
	}
	lease, err := l.Acquire(t.Context(), []string{"order:3", "order:1", "order:2"}, locking.Options{})
	held, ok := errors.AsType[*locking.HeldError](err)
	if lease != nil || !ok || held.Key != "order:2" {
		t.Fatalf("lease %v, error %v; want that order:2 is held", lease, err)
	}
	nowhere(t, clients, "order:1")
	nowhere(t, clients, "order:3")
	nowhere(t, []*redis.Client{clients[0], clients[4]}, "order:2")
	for _, c := range clients[1:4] {
		if got := c.Get(t.Context(), lockOf("order:2")).Val(); got != "another holder" {
			t.Errorf("the other holder's lock is %q", got)
		}
	}
	do(t, clients[2], "DEL", lockOf("order:2"))
	release(t, acquire(t, l, locking.Options{}, "order:1", "order:2", "order:3"))
}

// Contenders who start at the same moment can get two nodes each, so that none has the key. Then they may not all be told
// for long that it is held.
func TestSplitVotesAreResolved(t *testing.T) {
	t.Parallel()
	const contenders, rounds = 8, 40
	_, nodes := startNodes(t, 5)
	lockers := make([]*locking.Redlock, contenders)
	for i := range lockers {
		lockers[i] = newRedlock(t, nodes, unguarded)
		release(t, eventually(t, lockers[i], "warm up"))
	}
	most, missed := int64(0), 0
	for round := range rounds {
		key := fmt.Sprint("order:", round)
		var won atomic.Int64
		var crowd sync.WaitGroup
		start, tries, leases := make(chan struct{}), make([]atomic.Int64, contenders), make([]*locking.Lease, contenders)
		// A caller whose attempt is under way may have the key already: so the caller with the fewest attempts counts.
		needed := func() int64 {
			fewest := tries[0].Load()
			for i := range tries {
				fewest = min(fewest, tries[i].Load())
			}
			return fewest
		}
		for i, l := range lockers {
			crowd.Go(func() {
				<-start
				for won.Load() == 0 {
					tries[i].Add(1)
					lease, err := l.Acquire(t.Context(), []string{key}, locking.Options{})
					if err == nil {
						if won.Add(1) > 1 {
							t.Errorf("%s has two holders", key)
						}
						leases[i] = lease
						return
					}
					if !errors.Is(err, locking.ErrHeld) {
						t.Errorf("error %v, want ErrHeld", err)
						return
					}
					if n := needed(); n > 20 {
						t.Errorf("every caller was told %d times that %s is held, which no caller holds", n-1, key)
						return
					}
				}
			})
		}
		close(start)
		crowd.Wait()
		for _, lease := range leases {
			if lease != nil {
				release(t, lease)
			}
		}
		most = max(most, needed())
		if needed() > 1 {
			missed++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("in %d of %d rounds no caller won at the first attempt; %d attempts at most", missed, rounds, most)
	if missed > rounds/2 {
		t.Errorf("in %d of %d rounds no caller won at the first attempt", missed, rounds)
	}
}

func TestContendingLockersMakeProgress(t *testing.T) {
	t.Parallel()
	const lockers, goroutines, each = 4, 4, 5
	_, nodes := startNodes(t, 5)
	var holders, holds, last atomic.Int64 // last is when somebody last had the key
	var crowd sync.WaitGroup
	began := time.Now()
	for range lockers {
		l := newRedlock(t, nodes, unguarded)
		for range goroutines {
			crowd.Go(func() {
				for done := 0; done < each; {
					lease, err := l.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
					if err != nil {
						idle := time.Since(began) - time.Duration(last.Load())
						if !errors.Is(err, locking.ErrHeld) || idle > patience {
							t.Errorf("nobody has had the key for %v, with %d of %d: %v", idle, done, each, err)
							return
						}
						<-time.After(time.Millisecond)
						continue
					}
					if holders.Add(1) != 1 {
						t.Error("two holders at the same time")
					}
					done++
					holds.Add(1)
					last.Store(int64(time.Since(began)))
					holders.Add(-1)
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	crowd.Wait()
	if got := holds.Load(); got != lockers*goroutines*each {
		t.Errorf("%d acquisitions, want %d", got, lockers*goroutines*each)
	}
}

// Rivals with a part of the nodes each all lose: a refused caller must not be told to wait for a lease that no caller
// has.
func TestASplitRefusalHasAShortRemainingTime(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, unguarded)
	release(t, acquire(t, l, locking.Options{}, "k"))
	do(t, clients[0], "SET", lockOf("k"), "x", "PX", 30_000)
	do(t, clients[1], "SET", lockOf("k"), "y", "PX", 30_000)
	if h := refused(t, l, "k"); h.Remaining > time.Second {
		t.Errorf("no caller has a majority, and the refusal says %v left", h.Remaining)
	}
}

func TestALockWithoutAnEndOutlastsEveryOther(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	do(t, clients[0], "SET", lockOf("k"), "forever")
	do(t, clients[1], "SET", lockOf("k"), "forever")
	do(t, clients[2], "SET", lockOf("k"), "x", "PX", 20_000)
	l := newRedlock(t, nodes, unguarded)
	for range 20 {
		if h := refused(t, l, "k"); h.Remaining >= 0 && h.Remaining > time.Second {
			t.Fatalf("%v left, want no end", h.Remaining)
		}
	}
}
