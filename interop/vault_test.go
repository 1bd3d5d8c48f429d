package interop_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

// haBackend is one node of a Vault cluster. The value that a node gives its lock, its address, is the lease's label, so that
// the others learn it from the refusal and nothing besides the lock needs to be stored.
//
// It is no physical.FencingHABackend: the suite registers with the second node the lock that the first one has given back.
type haBackend struct{ locker locking.Locker }

// HAEnabled reports true.
func (b haBackend) HAEnabled() bool { return true }

// LockWith returns the lock of a key, not held.
func (b haBackend) LockWith(key, value string) (physical.Lock, error) {
	return &haLock{locker: b.locker, key: key, value: value}, nil
}

type haLock struct {
	locker     locking.Locker
	key, value string
	lease      *locking.Lease
}

// Lock waits for the key until stop is closed, and then returns nil.
func (l *haLock) Lock(stop <-chan struct{}) (<-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-stopped }()

	lease, err := await(ctx, l.locker, l.key, locking.Options{Label: l.value})
	switch {
	case errors.Is(err, context.Canceled):
		return nil, nil // what the interface asks for
	case err != nil:
		return nil, err
	}
	l.lease = lease
	return lease.Done(), nil
}

// Unlock gives the key back.
func (l *haLock) Unlock() error {
	if l.lease == nil {
		return nil
	}
	return l.lease.Release(context.Background())
}

// Value tells whether any node has the key, and which: whoever is refused learns it.
func (l *haLock) Value() (bool, string, error) {
	lease, err := l.locker.Acquire(context.Background(), []string{l.key}, locking.Options{Label: l.value})
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return true, held.Holder.Label, nil
	}
	if err != nil {
		return false, "", err
	}
	return false, "", lease.Release(context.Background())
}

func TestVaultHighAvailability(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, b backend, servers []*redistest.Server) {
		physical.ExerciseHABackend(t, haBackend{b.open(t, servers, nil)}, haBackend{b.open(t, servers, nil)})
		if held, value, err := (&haLock{locker: b.open(t, servers, nil), key: "foo"}).Value(); held || err != nil {
			t.Errorf("after the suite %q has the lock, %v; want nobody", value, err)
		}
	})
}
