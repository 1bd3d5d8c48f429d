package locking_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// join makes one lease of several, which is released at the end of the test.
func join(t *testing.T, leases []*locking.Lease) *locking.Lease {
	t.Helper()
	joined, err := locking.Join(t.Context(), leases, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = joined.Release(context.Background()) })
	return joined
}

func TestAJoinedLeaseIsLostWithAnyPart(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		leases, err := locking.Collect(t.Context(), inner, []string{"a", "b"}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		joined := join(t, leases)
		ctx := joined.Context(t.Context())
		time.Sleep(time.Minute) // virtual: several renewals
		if err := joined.Err(); err != nil {
			t.Fatalf("a lease that is renewed is over: %v", err)
		}
		inner.set(func() { delete(inner.owners, "b") })
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrLost) {
			t.Errorf("the context ended with %v", cause)
		}
		if err := joined.Release(t.Context()); !errors.Is(err, locking.ErrLost) || inner.holds("a") {
			t.Errorf("the release returned %v; a is held: %v", err, inner.holds("a"))
		}
	})
}

func TestJoinRefusesWhatIsNotOneLease(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		lease := acquire(t, inner, locking.Options{}, "a")
		if _, err := locking.Join(t.Context(), []*locking.Lease{lease, lease}, locking.Options{}); err == nil {
			t.Error("two leases of one key were joined")
		}
		if _, err := locking.Join(t.Context(), nil, locking.Options{}); err == nil {
			t.Error("no lease at all was joined")
		}
		if _, err := locking.Join(t.Context(), []*locking.Lease{lease}, locking.Options{TTL: -1}); err == nil {
			t.Error("a TTL of -1 was taken")
		}
		inner.set(func() { delete(inner.owners, "a") })
		if _, err := locking.Join(t.Context(), []*locking.Lease{lease}, locking.Options{}); !errors.Is(err, locking.ErrLost) {
			t.Errorf("a lost lease was joined: %v", err)
		}
	})
}
