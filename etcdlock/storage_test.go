package etcdlock_test

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/locking"
)

func TestACompactionChangesNoLockAndNoWait(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	l, client := newLocker(t, etcd.Addrs(), etcdlock.Options{}), newClient(t, etcd.Addrs())
	lease := acquire(t, l, locking.Options{}, "order")
	token, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released, stop, err := l.Watch(t.Context(), []string{"order"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 10 {
		if _, err := client.Put(t.Context(), "another key", "a value"); err != nil {
			t.Fatal(err)
		}
	}
	now, err := client.Get(t.Context(), "another key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), now.Header.GetRevision(), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), []string{"order"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Errorf("the key of a holder: %v, want ErrHeld", err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, lease)
	<-released
	next := acquire(t, l, locking.Options{}, "order")
	if later, err := next.Fence(t.Context()); err != nil || later <= token {
		t.Errorf("the token %d (%v) follows %d", later, err, token)
	}
	release(t, next)
}

func TestAFullEtcdReleasesLocksAndGrantsNone(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{Args: []string{"--quota-backend-bytes", "1048576"}})
	l, client := newLocker(t, etcd.Addrs(), etcdlock.Options{}), newClient(t, etcd.Addrs())
	lease := acquire(t, l, locking.Options{}, "order")
	for range 100 {
		if _, err := client.Put(t.Context(), "another key", strings.Repeat("x", 100_000)); err != nil {
			break
		}
	}
	_, err := l.Acquire(t.Context(), []string{"other"}, locking.Options{})
	if !errors.Is(err, locking.ErrUnavailable) || !strings.Contains(err.Error(), "defragment") {
		t.Errorf("a full etcd: %v, want ErrUnavailable with the remedy", err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("the holder cannot renew: %v", err)
	}
	release(t, lease)
	kept, err := client.Get(t.Context(), etcdlock.DefaultPrefix+"lock/order")
	if err != nil || kept.Count != 0 {
		t.Errorf("the released lock is still there: %v, %v", kept, err)
	}
}
