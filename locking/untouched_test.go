package locking_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

// The lock of a lease expires: its key is deleted.
func TestAnExpiredLeaseKnowsWhetherAnotherHadItsKey(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	var nodes []*redis.Options
	for _, s := range servers {
		nodes = append(nodes, &redis.Options{Addr: s.Addr()})
	}
	single := newSingle(t, servers[0].Client(t), locking.SingleOptions{})
	redlock := newRedlock(t, nodes, unguarded)
	for name, tc := range map[string]struct {
		l      locking.Locker
		admins []*redis.Client
	}{
		"single": {single, admins(t, servers[:1])}, "redlock": {redlock, admins(t, servers)},
		"gate": {locking.NewGate(single, locking.GateOptions{}), admins(t, servers[:1])},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stranger := locking.Locker(single)
			if name == "redlock" {
				stranger = redlock
			}
			for what, then := range map[string]struct {
				happens   func(t *testing.T, keys []string)
				untouched bool
			}{
				"nothing": {func(*testing.T, []string) {}, true},
				"was-taken": {func(t *testing.T, keys []string) {
					t.Helper()
					release(t, acquire(t, stranger, locking.Options{}, keys[1]))
				}, false},
				"is-taken": {func(t *testing.T, keys []string) {
					t.Helper()
					acquire(t, stranger, locking.Options{}, keys[1])
				}, false},
				"counter-gone": {func(t *testing.T, keys []string) {
					t.Helper()
					for _, admin := range tc.admins {
						do(t, admin, "DEL", counterOf(keys[1]))
					}
				}, false},
			} {
				keys := []string{name + what + "1", name + what + "2"}
				lease := acquire(t, tc.l, locking.Options{}, keys...)
				if _, err := lease.Fence(t.Context()); err != nil { // it is committed
					t.Fatal(err)
				}
				if got, err := untouched(t, lease); !got || err != nil {
					t.Errorf("%s, before it expires: %v, %v", what, got, err)
				}
				for _, admin := range tc.admins {
					do(t, admin, "DEL", lockOf(keys[0]), lockOf(keys[1]))
				}
				then.happens(t, keys)
				if got, err := untouched(t, lease); got != then.untouched || err != nil {
					t.Errorf("%s: %v, %v; want %v", what, got, err, then.untouched)
				}
			}
		})
	}
}

// A client of a Cluster may send what only reads to a replica. One that is behind does not know of the next owner.
func TestAnExpiredLeaseAsksTheMaster(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ReadOnly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	single := newSingle(t, client, locking.SingleOptions{})
	lease := acquire(t, single, locking.Options{}, "k")
	admin, behind := master.Client(t), replica.Client(t)
	for _, name := range []string{lockOf("k"), counterOf("k")} { // as they are now
		do(t, behind, "SET", name, admin.Get(t.Context(), name).Val())
	}
	if got, err := untouched(t, lease); !got || err != nil {
		t.Errorf("before it expires: %v, %v", got, err)
	}
	do(t, admin, "DEL", lockOf("k"))
	release(t, acquire(t, single, locking.Options{}, "k"))
	if client.Get(t.Context(), lockOf("k")).Val() == "" {
		t.Fatal("the client does not read from the replica")
	}
	if got, err := untouched(t, lease); got || err != nil {
		t.Errorf("after another owner: %v, %v; want that it was touched", got, err)
	}
}

func untouched(t *testing.T, lease *locking.Lease) (bool, error) {
	t.Helper()
	g, ok := locks.Grants(lease)[0].(backend.UntouchedGrant)
	if !ok {
		t.Fatal("the grant cannot tell")
	}
	return g.Untouched(t.Context())
}
