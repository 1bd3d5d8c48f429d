package locking_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// patience bounds every wait for an event in real time.
const patience = 20 * time.Second

// deadlines makes a client give up when its context says so, and at the first failure: as a client for locks should be.
func deadlines(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 }

// acquire takes keys that must be free and releases them with the test.
func acquire(t testing.TB, l locking.Locker, opts locking.Options, keys ...string) *locking.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), keys, opts)
	if err != nil {
		t.Fatalf("acquire %q: %v", keys, err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// refused makes an attempt that must be refused.
func refused(t testing.TB, l locking.Locker, keys ...string) locking.Holder {
	t.Helper()
	lease, err := l.Acquire(t.Context(), keys, locking.Options{})
	held, ok := errors.AsType[*locking.HeldError](err)
	if lease != nil || !ok {
		t.Fatalf("acquire %q: lease %v, error %v; want a HeldError", keys, lease, err)
	}
	return held.Holder
}

// release gives a lease back that must still be good.
func release(t testing.TB, lease *locking.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// eventually tries to acquire a key until it succeeds.
func eventually(t testing.TB, l locking.Locker, keys ...string) *locking.Lease {
	t.Helper()
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		lease, err := l.Acquire(t.Context(), keys, locking.Options{})
		if err == nil {
			t.Cleanup(func() { _ = lease.Release(context.Background()) })
			return lease
		}
		if time.Since(began) > patience {
			t.Fatalf("acquire %q: %v", keys, err)
		}
	}
}

// lost waits for the loss of a lease and returns why.
func lost(t testing.TB, lease *locking.Lease) *locking.LostError {
	t.Helper()
	select {
	case <-lease.Done():
	case <-time.After(patience):
		t.Fatalf("the lease did not end within %v", patience)
	}
	err, ok := errors.AsType[*locking.LostError](lease.Err())
	if !ok || !errors.Is(lease.Err(), locking.ErrLost) {
		t.Fatalf("the lease ended by %v, want a LostError", lease.Err())
	}
	return err
}

// isClear checks that an error says what was tried with which key and what went wrong, and claims nothing that is not
// so.
func isClear(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil || errors.Is(err, locking.ErrHeld) || errors.Is(err, locking.ErrLost) {
		t.Errorf("error %v, want one that is neither ErrHeld nor ErrLost", err)
		return
	}
	for _, part := range append(parts, "locking: ") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}
