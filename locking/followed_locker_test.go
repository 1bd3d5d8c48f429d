package locking_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// followed returns a Locker in front of a Gate, and the keys of each release that it has reported.
func followed(t *testing.T, inner locking.Locker) (outer locking.Locker, released func() [][]string) {
	t.Helper()
	var all [][]string
	outer = locks.OnRelease(inner, func(keys []string) { all = append(all, keys) })
	return outer, func() [][]string { return all }
}

// A caller that has subscribed waits for the release.
func TestOnlyTheLastOfSeveralHoldersIsReported(t *testing.T) {
	virtually(t, func(t *testing.T) {
		outer, released := followed(t, locking.NewGate(newRAM(), locking.GateOptions{}))
		first := got(t, waiting(t.Context(), outer, locking.Options{}, "k"))
		if _, err := outer.Acquire(t.Context(), []string{"k"}, locking.Options{Notify: locking.DefaultTTL}); err == nil {
			t.Fatal("the key was not held")
		}
		next := waiting(t.Context(), outer, locking.Options{}, "k")
		synctest.Wait()
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last := got(t, next); !first.HandedOff() || len(released()) > 0 {
			t.Errorf("handed off: %v, reported: %v", first.HandedOff(), released())
		} else if err := last.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := released(); len(all) != 1 || !slices.Equal(all[0], []string{"k"}) {
			t.Errorf("reported %v, want one release of k", all)
		}
	})
}

func TestTheNextHolderOfTheGateIsNotFollowed(t *testing.T) {
	virtually(t, func(t *testing.T) {
		gate := locking.NewGate(newRAM(), locking.GateOptions{})
		outer, released := followed(t, gate)
		first := got(t, waiting(t.Context(), outer, locking.Options{}, "k"))
		next := waiting(t.Context(), gate, locking.Options{}, "k")
		synctest.Wait()
		if _, err := outer.Acquire(t.Context(), []string{"k"}, locking.Options{Notify: locking.DefaultTTL}); err == nil {
			t.Fatal("the key was not held")
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		last := got(t, next)
		if err := last.Release(t.Context()); err != nil || !last.ShouldNotify() {
			t.Errorf("%v, should notify: %v", err, last.ShouldNotify())
		}
		if all := released(); len(all) > 0 {
			t.Errorf("reported %v, want nothing", all)
		}
	})
}

func TestAReleaseThatInterestsNoCallerIsNotReported(t *testing.T) {
	virtually(t, func(t *testing.T) {
		outer, released := followed(t, locking.NewGate(newRAM(), locking.GateOptions{}))
		if err := got(t, waiting(t.Context(), outer, locking.Options{}, "k")).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := released(); len(all) > 0 {
			t.Errorf("reported %v, want nothing", all)
		}
	})
}
