package worker

import (
	"context"
	"errors"
	"testing"

	"github.com/railtoken/railtoken/locking"
)

// elsewhere is a Locker that is not on Redis.
type elsewhere struct{ asked chan []string }

var errElsewhere = errors.New("elsewhere")

func (e elsewhere) Acquire(_ context.Context, keys []string, _ locking.Options) (*locking.Lease, error) {
	e.asked <- keys
	return nil, errElsewhere
}

func TestAWorkerLocksWithTheLockerOfItsConfig(t *testing.T) {
	t.Parallel()
	inner := elsewhere{make(chan []string, 1)}
	gate := locking.NewGate(inner, locking.GateOptions{})
	for name, locker := range map[string]locking.Locker{"a locker": inner, "a gate": gate} {
		w, err := New(Config{Redis: Redis{Addr: "127.0.0.1:1"}, Locker: locker})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Locker().Acquire(t.Context(), []string{"order"}, locking.Options{}); !errors.Is(err, errElsewhere) {
			t.Errorf("%s: the lock of the worker says %v", name, err)
		}
		if keys := <-inner.asked; len(keys) != 1 || keys[0] != "order" {
			t.Errorf("%s was asked for %q", name, keys)
		}
		if w.locker.RedisKeys != nil || locker == locking.Locker(gate) && w.locker.Gate != gate {
			t.Errorf("%s: the worker's locks are %+v", name, w.locker)
		}
		if err := w.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	_, err := New(Config{Redis: Redis{Addr: "a:1"}, LockRedis: Redis{Addr: "b:1"}, Locker: inner})
	wantParts(t, err, "Locker and LockRedis", "remove")
}
