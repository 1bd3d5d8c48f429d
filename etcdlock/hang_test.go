//go:build unix

package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/locking"
)

// A burst is many callers that give up soon, each of them again and again, for as long as etcd hangs.
const (
	burstCallers = 600
	burstTries   = 10
	burstTimeout = 300 * time.Millisecond
)

// burst makes attempts for keys that nobody else wants, and releases what is granted.
func burst(t *testing.T, l locking.Locker, tries int) {
	t.Helper()
	var all sync.WaitGroup
	for caller := range burstCallers {
		all.Go(func() {
			for try := range tries {
				ctx, cancel := context.WithTimeout(t.Context(), burstTimeout)
				lease, err := l.Acquire(ctx, []string{fmt.Sprint(caller, ":", try)}, locking.Options{})
				if err == nil {
					_ = lease.Release(ctx)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// etcd hangs while thousands of attempts are given up and thousands of leases released. No key may stay locked for a TTL.
func TestAHangingEtcdLeavesNoKeyLocked(t *testing.T) {
	// Not parallel: its thousands of requests and the tests beside it would slow one another.
	etcd := startEtcd(t, etcdtest.Options{})
	l := newLocker(t, etcd.Addrs(), etcdlock.Options{})
	watching := newClient(t, etcd.Addrs())
	burst(t, l, 1) // there are spare leases of etcd then
	held := make([]*locking.Lease, burstCallers*burstTries)
	var all sync.WaitGroup
	for part := range slices.Chunk(held, len(held)/32) {
		all.Go(func() {
			for i := range part {
				lease, err := locking.Wait(t.Context(), l, []string{fmt.Sprintf("held:%p", &part[i])}, locking.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				part[i] = lease
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	hang := func(during func()) {
		if err := etcd.Pause(0); err != nil {
			t.Fatal(err)
		}
		during()
		if err := etcd.Resume(0); err != nil {
			t.Fatal(err)
		}
	}
	hang(func() {
		for _, lease := range held {
			all.Go(func() { _ = lease.Release(t.Context()) })
		}
		burst(t, l, burstTries)
	})
	resumed := time.Now()
	for {
		left, err := watching.Get(t.Context(), etcdlock.DefaultPrefix+"lock/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && left.Count == 0 {
			break
		}
		if time.Since(resumed) > 2*time.Second {
			t.Fatalf("%v after etcd goes on: %d keys are locked by nobody, %v", time.Since(resumed), left.Count, err)
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Logf("all keys are free %v after etcd goes on", time.Since(resumed))
	hang(func() {
		burst(t, l, 1)
		began := time.Now()
		_ = l.Close()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
