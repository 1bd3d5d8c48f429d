package etcdlock_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
)

// A lock is lost when an operator deletes its key.
func TestConformsWhenKeysAreDeleted(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	lockingtest.Run(t, lockingtest.Harness{
		New: func(t *testing.T) locking.Locker { return newLocker(t, addrs, etcdlock.Options{Prefix: "deleted/"}) },
		Lose: func(t *testing.T, key string) {
			resp, err := newClient(t, addrs).Delete(t.Context(), "deleted/lock/"+key)
			if err != nil || resp.Deleted != 1 {
				t.Fatalf("%v, %v: the lock of %q was not deleted", resp, err, key)
			}
		},
	})
}

// A lock is lost when etcd ends its lease.
func TestConformsWhenLeasesEnd(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	lockingtest.Run(t, lockingtest.Harness{
		New: func(t *testing.T) locking.Locker { return newLocker(t, addrs, etcdlock.Options{Prefix: "ended/"}) },
		Lose: func(t *testing.T, key string) {
			client := newClient(t, addrs)
			resp, err := client.Get(t.Context(), "ended/lock/"+key)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("%v, %v: there is no lock of %q", resp, err, key)
			}
			if _, err := client.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
				t.Fatal(err)
			}
		},
	})
}
