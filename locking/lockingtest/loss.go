package lockingtest

import (
	"errors"

	"github.com/railtoken/railtoken/locking"
)

// In these tests the store loses a lock while the lease still trusts it, so that only the backend can tell.

func renewReportsALostLock(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.lose(key)
	s.renewalIsLost(lease)
	s.release(s.acquire(b, locking.Options{}, key)) // the renewal has not taken the lock again
}

func renewReportsAPartlyLostLock(s *suite) {
	a, b := s.locker(), s.locker()
	one, two := s.key("1"), s.key("2")
	lease := s.acquire(a, locking.Options{}, one, two)
	s.lose(two)
	s.renewalIsLost(lease)
	_ = lease.Release(s.Context())
	s.release(s.acquire(b, locking.Options{}, one, two))
}

func renewLeavesTheNextHolderAlone(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.lose(key)
	next := s.acquire(b, locking.Options{Label: "next"}, key)
	s.renewalIsLost(lease)
	s.holds("next", next, key)
}

func releaseReportsALostLock(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.lose(key)
	next := s.acquire(b, locking.Options{Label: "next"}, key)
	s.releaseIsLost(lease)
	s.holds("next", next, key)
}

func releaseReportsALockThatAnotherHolderHad(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.lose(key)
	s.release(s.acquire(b, locking.Options{}, key))
	s.releaseIsLost(lease)
}

func releaseFreesWhatIsLeft(s *suite) {
	a, b := s.locker(), s.locker()
	one, two, three := s.key("1"), s.key("2"), s.key("3")
	lease := s.acquire(a, locking.Options{}, one, two, three)
	s.lose(two)
	next := s.acquire(b, locking.Options{Label: "next"}, two)
	s.releaseIsLost(lease)
	s.release(s.acquire(b, locking.Options{}, one, three))
	s.holds("next", next, two)
}

// lose makes the store lose the lock of a key, or skips the test when the harness cannot.
func (s *suite) lose(key string) {
	s.Helper()
	if s.h.Lose == nil {
		s.skip("Harness.Lose is nil")
	}
	s.h.Lose(s.T, key)
}

// renewalIsLost renews a lease whose lock is lost.
func (s *suite) renewalIsLost(lease *locking.Lease) {
	s.Helper()
	if err := lease.Renew(s.Context()); !errors.Is(err, locking.ErrLost) {
		s.Errorf("Renew of a lost lock returned %v, want ErrLost", err)
	}
	err := lease.Err()
	if loss, ok := errors.AsType[*locking.LostError](err); !ok || loss.Reason != locking.LossTaken || len(loss.Keys) == 0 {
		s.Errorf("after the renewal of a lost lock Err is %v (%T), want a LostError with Reason LossTaken", err, err)
	}
}

// releaseIsLost releases a lease when another holder has, or has had, one of its keys.
func (s *suite) releaseIsLost(lease *locking.Lease) {
	s.Helper()
	if err := lease.Release(s.Context()); !errors.Is(err, locking.ErrLost) {
		s.Errorf("Release of a lost lock returned %v, want ErrLost", err)
	}
}

// holds checks that a lease still has its key in the store, and releases it.
func (s *suite) holds(label string, lease *locking.Lease, key string) {
	s.Helper()
	if held := s.refusal(s.locker(), locking.Options{}, key); held.Holder.Label != label {
		s.Errorf("%q is held by %q, want %q", key, held.Holder.Label, label)
	}
	if err := lease.Renew(s.Context()); err != nil {
		s.Errorf("the next holder cannot renew: %v", err)
	}
	s.release(lease)
}
