package locking_test

import (
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

func TestALockMayOutliveItsHolderForLong(t *testing.T) {
	t.Parallel()
	servers, nodes := startNodes(t, 3)
	opts := unguarded
	opts.MaxTTL = 10 * time.Minute
	for name, l := range map[string]locking.Locker{
		"single":  newSingle(t, servers[0].Client(t, deadlines), locking.SingleOptions{}),
		"redlock": newRedlock(t, nodes, opts),
	} {
		lease := acquire(t, l, locking.Options{TTL: 10 * time.Minute}, name)
		if left := time.Until(lease.ValidUntil()); left < 9*time.Minute {
			t.Errorf("%s: valid for %v", name, left)
		}
		if left := servers[0].Client(t).PTTL(t.Context(), lockOf(name)).Val(); name == "single" && left < 9*time.Minute {
			t.Errorf("the lock ends after %v", left)
		}
		release(t, lease)
	}
}

func TestALongTTLIsRefused(t *testing.T) {
	t.Parallel()
	_, nodes := startNodes(t, 3)
	for maxTTL, want := range map[time.Duration]string{0: "MaxTTL, 55s", 5 * time.Minute: "MaxTTL, 5m0s"} {
		opts := unguarded
		opts.MaxTTL = maxTTL
		l := newRedlock(t, nodes, opts)
		lease, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{TTL: 5*time.Minute + 1})
		if lease != nil {
			t.Error("a lease beyond what the guard waits for")
		}
		isClear(t, err, "TTL is 5m0.000000001s", want, "lower TTL, or raise MaxTTL")
	}
	for _, bad := range []time.Duration{time.Second - 1, time.Hour + 1} {
		_, err := locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: bad})
		isClear(t, err, "MaxTTL is "+bad.String(), "at least 1s", "at most FenceTTL, 1h0m0s")
	}
}

// The guard waits for MaxTTL, however much longer than asynq's limit that is.
func TestTheGuardWaitsForMaxTTL(t *testing.T) {
	t.Parallel()
	_, nodes := startNodes(t, 3)
	l := newRedlock(t, nodes, locking.RedlockOptions{MaxTTL: 10 * time.Minute, NodeTimeout: unguarded.NodeTimeout})
	_, err := l.Acquire(t.Context(), []string{"k"}, locking.Options{})
	isClear(t, err, "of 10m0s", "nobody has watched its process")
}
