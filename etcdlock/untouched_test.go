package etcdlock_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/internal/testing/locktaskstest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

func TestASuccessCountsAfterAStallOfEtcd(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	locker := newLocker(t, etcd.Addrs(), etcdlock.Options{})
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	locktaskstest.Stall(t, locker, newLocker(t, etcd.Addrs(), etcdlock.Options{}),
		func() { must(etcd.Pause(0)) }, func() { must(etcd.Resume(0)) })
}

// The locks of an expired lease are deleted.
func TestAnExpiredLeaseOnEtcdKnowsItsSuccessors(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	client := newClient(t, etcd.Addrs())
	l, other := newLocker(t, etcd.Addrs(), etcdlock.Options{}), newLocker(t, etcd.Addrs(), etcdlock.Options{})
	put := func(t *testing.T, key string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	for what, tc := range map[string]struct {
		happens   func(t *testing.T, key string)
		untouched bool
	}{
		"nothing": {func(*testing.T, string) {}, true},
		"others are busy": {func(t *testing.T, key string) {
			t.Helper()
			for range 200 {
				put(t, etcdlock.DefaultPrefix+"lock/"+key+"/longer")
			}
		}, true},
		"was taken": {func(t *testing.T, key string) { t.Helper(); release(t, acquire(t, other, locking.Options{}, key)) }, false},
		"was taken often": {func(t *testing.T, key string) {
			t.Helper()
			for range 50 {
				release(t, acquire(t, other, locking.Options{}, key))
			}
		}, false},
		"is taken": {func(t *testing.T, key string) { t.Helper(); acquire(t, other, locking.Options{}, key) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			lease := acquire(t, l, locking.Options{}, what+"a", what+"b")
			if got, err := untouched(t, lease); !got || err != nil {
				t.Errorf("before it expires: %v, %v", got, err)
			}
			deleteLock(t, client, what+"b")
			tc.happens(t, what+"b")
			if got, err := untouched(t, lease); got != tc.untouched || err != nil {
				t.Errorf("untouched: %v, %v; want %v", got, err, tc.untouched)
			}
		})
	}
	t.Run("while others write", func(t *testing.T) {
		t.Parallel()
		for i := range 60 {
			key := fmt.Sprint("round", i)
			lease := acquire(t, l, locking.Options{}, key)
			deleteLock(t, client, key)
			if i%2 == 1 {
				release(t, acquire(t, other, locking.Options{}, key))
			}
			if got, err := untouched(t, lease); got != (i%2 == 0) || err != nil {
				t.Errorf("round %d: untouched: %v, %v", i, got, err)
			}
		}
	})
}

func TestACompactedHistoryDoesNotTell(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	client := newClient(t, etcd.Addrs())
	lease := acquire(t, newLocker(t, etcd.Addrs(), etcdlock.Options{}), locking.Options{}, "key")
	deleteLock(t, client, "key")
	resp, err := client.Put(t.Context(), "other", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), resp.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if got, err := untouched(t, lease); got || err != nil {
		t.Errorf("untouched: %v, %v; want false", got, err)
	}
}

func deleteLock(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	if _, err := client.Delete(t.Context(), etcdlock.DefaultPrefix+"lock/"+key); err != nil {
		t.Fatal(err)
	}
}

func untouched(t *testing.T, lease *locking.Lease) (bool, error) {
	t.Helper()
	grant, ok := locks.Grants(lease)[0].(backend.UntouchedGrant)
	if !ok {
		t.Fatal("the grant cannot tell")
	}
	return grant.Untouched(t.Context())
}
