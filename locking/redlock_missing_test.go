package locking_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// patient allows leases whose first renewal is minutes away.
var patient = locking.RedlockOptions{Guard: locking.GuardOff, MaxTTL: time.Hour}

func TestANodeThatReturnsHasEveryLeaseAtOnce(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	l := newRedlock(t, nodes, patient)
	release(t, eventuallyWith(t, l, locking.Options{}, "order:1"))
	servers[2].Kill()
	const leases = 300
	var held []*locking.Lease
	for i := range leases {
		held = append(held, eventuallyWith(t, l, locking.Options{TTL: 10 * time.Minute}, fmt.Sprint("order:", i)))
	}
	servers[2].Restart(t)
	began := time.Now()
	for i := range leases {
		everywhere(t, clients[2:], fmt.Sprint("order:", i))
	}
	t.Logf("%d locks within %v; the first renewal would be after minutes", leases, time.Since(began))
	for _, lease := range held {
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		release(t, lease)
	}
	for i := range leases {
		nowhere(t, clients, fmt.Sprint("order:", i))
	}
}

// The third server was away when the lease began, and the clock of the second is set forward after it is back.
func TestOneClockSetForwardGivesNoSecondHolder(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	clients := admins(t, servers)
	holder, rival := newRedlock(t, nodes, patient), newRedlock(t, nodes, patient)
	release(t, eventuallyWith(t, holder, locking.Options{}, "order:1"))
	servers[2].Kill()
	lease := eventuallyWith(t, holder, locking.Options{TTL: 10 * time.Minute}, "order:1")
	servers[2].Restart(t)
	everywhere(t, clients[2:], "order:1")
	do(t, clients[1], "DEL", lockOf("order:1")) // as a clock does that is set beyond the end of the lock
	for held := false; !held; {                 // on a busy machine too few servers may answer in time at first
		second, err := rival.Acquire(t.Context(), []string{"order:1"}, locking.Options{})
		if err == nil {
			t.Fatalf("a second holder: %v", second)
		}
		held = errors.Is(err, locking.ErrHeld)
	}
	await(t, "a renewal takes the lock again once the refused attempt is undone", func() bool {
		value := func(i int) string { return clients[i].Get(t.Context(), lockOf("order:1")).Val() }
		return lease.Renew(t.Context()) == nil && value(1) == value(0)
	})
	release(t, lease)
}
