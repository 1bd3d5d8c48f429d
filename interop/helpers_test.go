package interop_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// patience bounds every wait for an event in real time.
const patience = 30 * time.Second

// pause returns after a few milliseconds, or with ctx. Its length is random, so that those who contend do not keep step.
func pause(ctx context.Context) error {
	timer := time.NewTimer(5*time.Millisecond + rand.N(15*time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// await tries to acquire a key until it is free. Any answer but a refusal ends it.
func await(ctx context.Context, l locking.Locker, key string, opts locking.Options) (*locking.Lease, error) {
	for {
		lease, err := l.Acquire(ctx, []string{key}, opts)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.Is(err, locking.ErrHeld) {
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// eventually acquires a key that becomes free within patience.
func eventually(t *testing.T, l locking.Locker, key string) *locking.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := await(ctx, l, key, locking.Options{})
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	giveBack(t, lease)
	return lease
}

// acquire takes a key that must be free.
func acquire(t *testing.T, l locking.Locker, key string, opts locking.Options) *locking.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), []string{key}, opts)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	giveBack(t, lease)
	return lease
}

func giveBack(t *testing.T, lease *locking.Lease) {
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
}

// refused makes an attempt that must be refused.
func refused(t *testing.T, l locking.Locker, key string) *locking.HeldError {
	t.Helper()
	lease, err := l.Acquire(t.Context(), []string{key}, locking.Options{})
	held, ok := errors.AsType[*locking.HeldError](err)
	if lease != nil || !ok {
		t.Fatalf("acquire %q: lease %v, error %v; want a HeldError", key, lease, err)
	}
	return held
}

func release(t *testing.T, lease *locking.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// fence returns the lease's token.
func fence(t *testing.T, lease *locking.Lease) int64 {
	t.Helper()
	token, err := lease.Fence(t.Context())
	if err != nil {
		t.Fatalf("fence: %v", err)
	}
	return token
}
