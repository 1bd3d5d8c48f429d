package locking_test

import (
	"errors"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking"
)

// access does what package locking does not export.
var access = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

func TestASuccessorHasTheNextLease(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{HandOffs: 2})
		lease := acquire(t, gate, locking.Options{}, "a", "b")
		for range 2 {
			turn, _, ok := access.Succeed(gate, []string{"b", "a"}, locking.Options{})
			if !ok {
				t.Fatal("there is no successor")
			}
			if _, _, ok := access.Succeed(gate, []string{"a", "b"}, locking.Options{}); ok {
				t.Error("there are two successors")
			}
			before := tokenOf(t, lease)
			release(t, lease)
			if lease = <-turn; lease == nil || tokenOf(t, lease) != before+1 {
				t.Fatalf("the successor has %v after token %d", lease, before)
			}
		}
		if _, _, ok := access.Succeed(gate, []string{"a", "b"}, locking.Options{}); ok {
			t.Error("the last lease of a block has a successor")
		}
		release(t, lease)
		if n := inner.calls(); n != 2 || inner.holds("a") {
			t.Errorf("%d calls, want one attempt and one release", n)
		}
	})
}

func TestASuccessorHasNoLeaseThatIsNotToBeHandedOff(t *testing.T) {
	for name, tt := range map[string]struct {
		keys []string
		opts locking.Options
	}{
		"other keys":  {keys: []string{"a"}},
		"another TTL": {keys: []string{"a", "b"}, opts: locking.Options{TTL: time.Minute}},
		"a longer MaxHold": {
			keys: []string{"a", "b"}, opts: locking.Options{MaxHold: 2 * locking.DefaultMaxHold},
		},
		"a free key": {keys: []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			gate := locking.NewGate(newRAM(), locking.GateOptions{})
			lease := acquire(t, gate, locking.Options{}, "a", "b")
			if _, _, ok := access.Succeed(gate, tt.keys, tt.opts); ok {
				t.Error("it has a successor")
			}
			release(t, lease)
		})
	}
}

// One that has left, or whose lease is released while others wait for one of its keys, gets none.
func TestASuccessorComesAfterThoseWhoWait(t *testing.T) {
	for _, key := range []string{"a", "b"} {
		t.Run(key, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				gate := locking.NewGate(newRAM(), locking.GateOptions{})
				lease := acquire(t, gate, locking.Options{}, "a", "b")
				turn, _, ok := access.Succeed(gate, []string{"a", "b"}, locking.Options{})
				if !ok {
					t.Fatal("there is no successor")
				}
				waiter := inLine(t.Context(), gate, locking.Options{}, key)
				waits(t, waiter)
				release(t, lease)
				if next := <-turn; next != nil {
					t.Error("the successor has overtaken a waiter")
				}
				lease = got(t, waiter)
				second := inLine(t.Context(), gate, locking.Options{}, key)
				waits(t, second)
				if _, _, ok := access.Succeed(gate, []string{key}, locking.Options{}); ok {
					t.Error("a successor stands before a waiter")
				}
				release(t, lease)
				release(t, got(t, second))
			})
		})
	}
}

func TestASuccessorThatHasLeftGetsNoLease(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		lease := acquire(t, gate, locking.Options{}, "a")
		turn, leave, _ := access.Succeed(gate, []string{"a"}, locking.Options{})
		leave()
		release(t, lease)
		if len(turn) > 0 || inner.holds("a") {
			t.Error("the lease was handed off")
		}
	})
}

func TestALeaseThatIsTheLastIsNotHandedOff(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		single, joined := acquire(t, gate, locking.Options{}, "a"), acquire(t, gate, locking.Options{}, "b")
		all, err := locking.Join(t.Context(), []*locking.Lease{joined}, locking.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var leaves []func()
		for _, key := range []string{"a", "b"} {
			_, leave, ok := access.Succeed(gate, []string{key}, locking.Options{})
			if !ok {
				t.Fatal("there is no successor")
			}
			leaves = append(leaves, leave)
		}
		for _, lease := range []*locking.Lease{single, all} {
			access.Last(lease)
			release(t, lease)
			if lease.HandedOff() || inner.holds(lease.Keys()[0]) {
				t.Errorf("the lease of %v was handed off", lease.Keys())
			}
		}
		for _, leave := range leaves {
			leave()
		}
	})
}

func TestADeposedLeaseKeepsItsKeysUntilItIsReleased(t *testing.T) {
	virtually(t, func(t *testing.T) {
		inner := newRAM()
		gate := locking.NewGate(inner, locking.GateOptions{})
		lease := acquire(t, gate, locking.Options{}, "a")
		if !access.Depose(lease, "ann", "it hangs") || access.Depose(lease, "bob", "once more") {
			t.Error("a lease is deposed once")
		}
		loss, lost := errors.AsType[*locking.LostError](lease.Err())
		if by, ok := errors.AsType[*locking.DeposedError](lease.Err()); !lost || loss.Reason != locking.LossDeposed || !ok || by.By != "ann" {
			t.Errorf("its error is %v", lease.Err())
		}
		if !inner.holds("a") {
			t.Error("its key is free before the release")
		}
		if err := lease.Release(t.Context()); !errors.Is(err, locking.ErrLost) || inner.holds("a") {
			t.Errorf("the release returns %v, locked: %v", err, inner.holds("a"))
		}
		released := acquire(t, gate, locking.Options{}, "a")
		release(t, released)
		if access.Depose(released, "ann", "too late") {
			t.Error("a released lease is deposed")
		}
	})
}
