package etcdlock_test

import (
	"errors"
	"testing"

	"github.com/railtoken/railtoken/etcdlock"
	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/locking"
)

func TestTheLongestDurationsWork(t *testing.T) {
	t.Parallel()
	l := newLocker(t, sharedEtcd(t), etcdlock.Options{Prefix: "longest/"})
	longest := locking.Options{TTL: leasing.Most, MaxHold: leasing.Most, Notify: leasing.Most}
	lease := acquire(t, l, longest, "order")
	for range 2 {
		if _, err := l.Acquire(t.Context(), []string{"order"}, longest); !errors.Is(err, locking.ErrHeld) {
			t.Errorf("the key of a holder: %v, want ErrHeld", err)
		}
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, lease)
	if !lease.ShouldNotify() {
		t.Error("the holder was not told of a subscription")
	}
}
