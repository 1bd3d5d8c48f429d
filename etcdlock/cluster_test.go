package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/lockhistorytest"
	"github.com/railtoken/railtoken/locking"
)

// fastElections has a cluster elect another leader within a second.
var fastElections = etcdtest.Options{Members: 3, Election: 500 * time.Millisecond}

// The leader is killed, or stopped for a while, again and again in the middle of acquisitions and releases.
func TestNoTokenComesTwiceWhileLeadersFail(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, fastElections)
	h := lockhistorytest.New()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for client := range 6 {
		l := locking.Locker(newLocker(t, etcd.Addrs(), etcdlock.Options{}))
		if client%2 == 0 {
			l = locking.NewGate(l, locking.GateOptions{})
		}
		for caller := range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					key := fmt.Sprint("order:", rand.IntN(3))
					hold := time.Duration(rand.IntN(int(5 * time.Millisecond)))
					if err := h.Use(ctx, 2*client+caller, l, key, hold, locking.Options{}); err != nil && ctx.Err() == nil && !errors.Is(err, locking.ErrUnavailable) {
						t.Errorf("client %d: %v", client, err)
					}
				}
			})
		}
	}
	// A long lease of its own must survive all of this: its TTL is longer.
	long := acquire(t, newLocker(t, etcd.Addrs(), etcdlock.Options{}), locking.Options{}, "long")
	for round := range 4 {
		h.Await(t, 100)
		failLeader(t, etcd, round%2 == 0)
	}
	h.Await(t, 100)
	stop()
	all.Wait()
	h.Judge(t, linearizable)
	if err := long.Renew(t.Context()); err != nil {
		t.Errorf("the long lease: %v", err)
	}
	release(t, long)
}

// failLeader kills the leader and starts it again, or stops it until there is another one and continues it.
func failLeader(t *testing.T, etcd *etcdtest.Cluster, kill bool) {
	t.Helper()
	leader := leaderOf(t, etcd)
	var err error
	if kill {
		etcd.Kill(leader)
	} else {
		err = etcd.Pause(leader)
	}
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if next, err := etcd.Leader(t.Context()); err == nil && next != leader {
			break
		} else if time.Since(began) > 30*time.Second {
			t.Fatalf("no other leader in 30 s: %v", err)
		}
	}
	if kill {
		err = etcd.Restart(leader)
	} else {
		err = etcd.Resume(leader)
	}
	if err := errors.Join(err, etcd.Await(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func leaderOf(t *testing.T, etcd *etcdtest.Cluster) int {
	t.Helper()
	if err := etcd.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader, err := etcd.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// Without a majority no call hangs, a lease is lost with its cause, and all is well once the majority is back.
func TestALostMajorityLosesLeasesWithCause(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, fastElections)
	l := newLocker(t, etcd.Addrs(), etcdlock.Options{})
	lease := acquire(t, l, locking.Options{TTL: 3 * time.Second}, "order")
	ctx := lease.Context(t.Context())
	first := leaderOf(t, etcd)
	for i := range 2 {
		etcd.Kill((first + i) % 3)
	}
	began := time.Now()
	_, err := l.Acquire(t.Context(), []string{"other"}, locking.Options{})
	if took := time.Since(began); !errors.Is(err, locking.ErrUnavailable) || took > 10*time.Second {
		t.Errorf("without a majority Acquire says %v after %v", err, took)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	if _, err := l.Acquire(short, []string{"other"}, locking.Options{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("with 100 ms Acquire says %v after %v", err, time.Since(began))
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the lease is not lost 10 s later")
	}
	loss, ok := errors.AsType[*locking.LostError](context.Cause(ctx))
	if !ok || loss.Reason != locking.LossExpired || loss.Err == nil {
		t.Errorf("the cause of the loss is %v", context.Cause(ctx))
	}
	for i := range 2 {
		if err := etcd.Restart((first + i) % 3); err != nil {
			t.Fatal(err)
		}
	}
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := lease.Release(wait); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the release of the lost lease says %v", err)
	}
	next, err := waitPatiently(wait, l, "order")
	if err != nil {
		t.Fatal(err)
	}
	release(t, next)
}

// waitPatiently waits for a key through an outage.
func waitPatiently(ctx context.Context, l locking.Locker, key string) (*locking.Lease, error) {
	for {
		lease, err := locking.Wait(ctx, l, []string{key}, locking.Options{})
		if err == nil || !errors.Is(err, locking.ErrUnavailable) || ctx.Err() != nil {
			return lease, err
		}
	}
}
