package locking_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/colocated"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
)

func TestAReleaseHoldsItsKeyUntilItIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Virtual(t)
		single := newSingle(t, client, locking.SingleOptions{})
		gate := locking.NewGate(single, locking.GateOptions{})
		opts := locking.Options{TTL: 2 * time.Second}
		first := acquire(t, gate, opts, "order")
		released := make(chan error, 1)
		release := locks.Defer(first, func(_ colocated.Outcome, err error) { released <- err })
		if release == nil {
			t.Fatal("the release is not left to the caller")
		}
		time.Sleep(4 * time.Second) // the lock has expired, but its release may be under way
		if _, err := gate.Acquire(t.Context(), []string{"order"}, opts); !errors.Is(err, locking.ErrHeld) {
			t.Errorf("error %v while a release is under way, want ErrHeld", err)
		}
		release.Late()
		second := acquire(t, gate, opts, "order")
		release.Answered(colocated.Outcome{})
		if err := <-released; err != nil {
			t.Errorf("the release gives %v", err)
		}
		if _, err := gate.Acquire(t.Context(), []string{"order"}, opts); !errors.Is(err, locking.ErrHeld) || second.Err() != nil {
			t.Errorf("error %v after a late answer, want ErrHeld; the next lease: %v", err, second.Err())
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A caller that is refused in memory, after the script has released the key and before this process knows, is notified by nobody else.
func TestARefusalDuringAReleaseIsNotified(t *testing.T) {
	t.Parallel()
	for when, during := range map[string]bool{"before": false, "during": true} {
		for _, notified := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, notified %t", when, notified), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					_, client := redistest.Virtual(t)
					gate := locking.NewGate(newSingle(t, client, locking.SingleOptions{}), locking.GateOptions{})
					refuse := func() {
						_, err := gate.Acquire(t.Context(), []string{"order"}, locking.Options{Notify: time.Minute})
						if !errors.Is(err, locking.ErrHeld) {
							t.Fatalf("error %v, want ErrHeld", err)
						}
					}
					lease := acquire(t, gate, locking.Options{}, "order")
					refuse()
					release := locks.Defer(lease, func(colocated.Outcome, error) {})
					if during {
						refuse()
					}
					release.Answered(colocated.Outcome{Notify: notified})
					if lease.ShouldNotify() != during {
						t.Errorf("others are to be notified: %v; the script has notified those before it", lease.ShouldNotify())
					}
				})
			})
		}
	}
}
