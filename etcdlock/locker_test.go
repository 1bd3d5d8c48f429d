package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/testing/etcdtest"
	"github.com/railtoken/railtoken/locking"
)

func acquire(t testing.TB, l locking.Locker, opts locking.Options, keys ...string) *locking.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), keys, opts)
	if err != nil {
		t.Fatalf("acquire %.99q: %v", keys, err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

func release(t testing.TB, lease *locking.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// wantParts checks that an error has all of the parts.
func wantParts(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error %v lacks %q", err, part)
		}
	}
}

func TestANilClientIsRefused(t *testing.T) {
	t.Parallel()
	_, err := etcdlock.New(nil, etcdlock.Options{})
	wantParts(t, err, "nil client", "*clientv3.Client")
}

func TestATTLBelowEtcdsFloorIsRefused(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{Election: 3 * time.Second})
	l := newLocker(t, etcd.Addrs(), etcdlock.Options{})
	_, err := l.Acquire(t.Context(), []string{"order"}, locking.Options{TTL: time.Second})
	wantParts(t, err, "TTL is 1s", "at least 5 s", "raise TTL to 4 s", "--election-timeout")
	if errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("the error %v says that another attempt may succeed", err)
	}
	release(t, acquire(t, l, locking.Options{TTL: 4 * time.Second}, "order"))
}

func TestTokensComeFromTheRevision(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	client, l := newClient(t, addrs), newLocker(t, addrs, etcdlock.Options{Prefix: "revision/", Label: "me"})
	lease := acquire(t, l, locking.Options{}, "a", "b")
	for _, key := range []string{"a", "b"} {
		stored, err := client.Get(t.Context(), "revision/lock/"+key)
		if err != nil || len(stored.Kvs) != 1 {
			t.Fatal(stored, err)
		}
		token, err := lease.FenceOf(t.Context(), key)
		if err != nil || token != 256*stored.Kvs[0].CreateRevision {
			t.Errorf("token %d, %v, of revision %d", token, err, stored.Kvs[0].CreateRevision)
		}
		if value := string(stored.Kvs[0].Value); !strings.Contains(value, `"label":"me"`) {
			t.Errorf("the value %s does not name the holder", value)
		}
	}
}

// A program that keeps its locks under the same names, without a lease or a value of ours, excludes and is excluded.
func TestAForeignLockExcludes(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	client, l := newClient(t, addrs), newLocker(t, addrs, etcdlock.Options{Prefix: "foreign/"})
	if _, err := client.Put(t.Context(), "foreign/lock/order", "busy"); err != nil {
		t.Fatal(err)
	}
	_, err := l.Acquire(t.Context(), []string{"order"}, locking.Options{})
	held, ok := errors.AsType[*locking.HeldError](err)
	if !ok || held.Holder.Label != "" || held.Holder.Fence != 0 || held.Holder.Remaining >= 0 {
		t.Errorf("refused with %v", err)
	}
	if _, err := client.Delete(t.Context(), "foreign/lock/order"); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, l, locking.Options{}, "order"))
}

func TestManyKeysAreTakenTogether(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	l, other := newLocker(t, addrs, etcdlock.Options{Prefix: "many/"}), newLocker(t, addrs, etcdlock.Options{Prefix: "many/"})
	keys := make([]string, 129)
	for i := range keys {
		keys[i] = fmt.Sprintf("%03d", i)
	}
	_, err := l.Acquire(t.Context(), keys, locking.Options{})
	wantParts(t, err, "too many operations", "fewer keys", "--max-txn-ops")
	if errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("the error %v says that another attempt may succeed", err)
	}
	for _, n := range []int{64, 65, 128} {
		first := acquire(t, l, locking.Options{}, keys[n-1])
		_, err = other.Acquire(t.Context(), keys[:n], locking.Options{Notify: time.Minute})
		if held, ok := errors.AsType[*locking.HeldError](err); !ok || held.Key != keys[n-1] {
			t.Errorf("%d keys: refused with %v", n, err)
		}
		release(t, first)
		lease := acquire(t, l, locking.Options{}, keys[:n]...)
		_, err = other.Acquire(t.Context(), keys[n-1:n], locking.Options{Notify: time.Minute})
		if held, ok := errors.AsType[*locking.HeldError](err); !ok || held.Key != keys[n-1] {
			t.Errorf("%d keys: refused with %v", n, err)
		}
		release(t, lease)
		if !lease.ShouldNotify() {
			t.Errorf("%d keys: the releaser was not told of a subscription", n)
		}
	}
}

func TestAReleaseWithoutSubscriptionsNotifiesNoCaller(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	l, other := newLocker(t, addrs, etcdlock.Options{Prefix: "quiet/"}), newLocker(t, addrs, etcdlock.Options{Prefix: "quiet/"})
	lease := acquire(t, l, locking.Options{}, "order")
	if _, err := other.Acquire(t.Context(), []string{"order"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Fatal(err)
	}
	release(t, lease)
	if lease.ShouldNotify() {
		t.Error("the releaser was told of a subscription that there is not")
	}
}

// A caller that waits behind another one that waits has its subscription still after the first release.
func TestASubscriptionOutlivesARelease(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	l, other := newLocker(t, addrs, etcdlock.Options{Prefix: "stays/"}), newLocker(t, addrs, etcdlock.Options{Prefix: "stays/"})
	lease := acquire(t, l, locking.Options{}, "order")
	if _, err := other.Acquire(t.Context(), []string{"order"}, locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
		t.Fatal(err)
	}
	for range 3 {
		release(t, lease)
		if !lease.ShouldNotify() {
			t.Error("the releaser was not told of a subscription")
		}
		lease = acquire(t, l, locking.Options{}, "order")
	}
}

// Locks that come and go use one etcd lease again and again: then an acquisition takes one write.
func TestAnAcquisitionTakesOneWrite(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	client, l := newClient(t, etcd.Addrs()), newLocker(t, etcd.Addrs(), etcdlock.Options{})
	for range 50 {
		release(t, acquire(t, l, locking.Options{}, "order"))
	}
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Errorf("50 acquisitions left the leases %v, %v, in etcd, want one", leases, err)
	}
	got, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || got.Count != 0 || got.Header.Revision != 1+2*50 {
		t.Errorf("%d keys at revision %d, %v; want none at 101", got.Count, got.Header.Revision, err)
	}
}

// A spare lease of etcd may be gone by the time it is to be used again.
func TestASpareLeaseThatIsGoneIsReplaced(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	client, l := newClient(t, etcd.Addrs()), newLocker(t, etcd.Addrs(), etcdlock.Options{})
	for range 3 {
		release(t, acquire(t, l, locking.Options{}, "order"))
		leases, err := client.Leases(t.Context())
		if err != nil || len(leases.Leases) == 0 {
			t.Fatal(leases, err)
		}
		for _, lease := range leases.Leases {
			if _, err := client.Revoke(t.Context(), lease.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestALeaseOutlivesItsLocker(t *testing.T) {
	t.Parallel()
	addrs := sharedEtcd(t)
	l, other := newLocker(t, addrs, etcdlock.Options{Prefix: "closed/"}), newLocker(t, addrs, etcdlock.Options{Prefix: "closed/"})
	lease := acquire(t, l, locking.Options{}, "order")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	if _, err := l.Acquire(t.Context(), []string{"other"}, locking.Options{}); err == nil {
		t.Error("a closed locker gives a lease")
	}
	if _, _, err := l.Watch(t.Context(), []string{"order"}); err == nil {
		t.Error("a closed locker watches")
	}
	release(t, lease)
	release(t, acquire(t, other, locking.Options{}, "order"))
	if err := l.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func TestAClosedClientIsNamed(t *testing.T) {
	t.Parallel()
	client := newClient(t, sharedEtcd(t))
	l, err := etcdlock.New(client, etcdlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(client.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	l, _ = etcdlock.New(client, etcdlock.Options{})
	_, err = l.Acquire(t.Context(), []string{"order"}, locking.Options{})
	wantParts(t, err, "client of etcd is closed")
	if errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("the error %v says that another attempt may succeed", err)
	}
	_ = l.Close()
}

// A user without the permission is told which one to add, and may try again once it is there.
func TestAUserWithoutPermissionGetsTheRemedy(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t, etcdtest.Options{})
	root := newClient(t, etcd.Addrs())
	for _, err := range []error{
		second(root.RoleAdd(t.Context(), "root")), second(root.UserAdd(t.Context(), "root", "r")),
		second(root.UserGrantRole(t.Context(), "root", "root")), second(root.RoleAdd(t.Context(), "locks")),
		second(root.UserAdd(t.Context(), "worker", "w")), second(root.UserGrantRole(t.Context(), "worker", "locks")),
		second(root.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := newLocker(t, etcd.Addrs(), etcdlock.Options{}).Acquire(t.Context(), []string{"order"}, locking.Options{})
	wantParts(t, err, "user name is empty", "Username", "railtoken/")

	as := func(user, password string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Addrs(), Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	l, err := etcdlock.New(as("worker", "w"), etcdlock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, err = l.Acquire(t.Context(), []string{"order"}, locking.Options{})
	wantParts(t, err, "permission denied", "etcdctl role grant-permission", "readwrite", "railtoken/")
	if !errors.Is(err, locking.ErrUnavailable) {
		t.Errorf("the error %v says that no other attempt may succeed", err)
	}
	_, err = as("root", "r").RoleGrantPermission(t.Context(), "locks", "railtoken/", clientv3.GetPrefixRangeEnd("railtoken/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, l, locking.Options{}, "order")
	if _, err := l.Acquire(t.Context(), []string{"order"}, locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
		t.Error(err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, lease)
}

func second[T any](_ T, err error) error { return err }

// Keys of any bytes are kept apart: no key is the lock, or the subscription, of another one.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"", "'", `"`, "\x00", "a\x00b", "/", "../lock/a", "notify/a", "\xff\xfe", strings.Repeat("k", 1024)} {
		f.Add(key, key+"/lock")
	}
	l := newLocker(f, sharedEtcd(f), etcdlock.Options{Prefix: "fuzz/"})
	f.Fuzz(func(t *testing.T, one, two string) {
		both := []string{one, two}
		lease := acquire(t, l, locking.Options{}, both...)
		slices.Sort(both)
		if got := lease.Keys(); !slices.Equal(got, slices.Compact(both)) {
			t.Errorf("a lease of %q, want %q", got, both)
		}
		for _, key := range lease.Keys() {
			_, err := l.Acquire(t.Context(), []string{key}, locking.Options{Notify: time.Minute})
			if held, ok := errors.AsType[*locking.HeldError](err); !ok || held.Key != key {
				t.Errorf("%q: refused with %v", key, err)
			}
		}
		release(t, lease)
		if !lease.ShouldNotify() {
			t.Error("the subscriptions are lost")
		}
		lease = acquire(t, l, locking.Options{}, one)
		if one != two {
			release(t, acquire(t, l, locking.Options{}, two))
		}
		release(t, lease)
	})
}
