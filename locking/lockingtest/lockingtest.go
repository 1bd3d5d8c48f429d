// Package lockingtest tests Lockers. [Run] checks that a [locking.Locker], such as one that locking.New has made from
// your own backend, keeps the promises of the interface.
package lockingtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// Harness connects the suite to the backend under test.
type Harness struct {
	// New returns a Locker with its own client of the backend, and registers its cleanup with t. The Lockers of one test
	// share their locks.
	New func(t *testing.T) locking.Locker

	// Lose makes the store lose the lock of a key, as if its TTL had ended early or an operator had deleted it: the key
	// is free at once, its holder is not told, and its fencing tokens continue to grow. If the store keeps the record of
	// a lock whose TTL has ended, end the TTL: then the suite also finds a Renew that revives such a lock. When Lose is
	// nil, the tests of lost locks are skipped, and nothing else checks that Renew and Release detect a loss.
	Lose func(t *testing.T, key string)

	// Run runs one test of the suite, for example in virtual time by synctest.Test. When nil, the test is called
	// directly.
	Run func(t *testing.T, test func(t *testing.T))
}

// Run runs the whole suite as parallel subtests of t. Each test uses its own keys, so the store may be shared with
// other tests. In real time Run takes about 7 s, most of it spent waiting for TTLs to end. No wait lasts longer than
// 20 s.
//
// Run skips what it cannot test: AReleaseNotifiesWatches if the Locker is not a [locking.Watcher],
// TokensGrowWhileALeaseIsHandedOff if the backend ignores Request.Block, so that a [locking.Gate] has no tokens to hand
// off, and the six tests of lost locks if Harness.Lose is nil. go test -v shows what was skipped.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tests := []struct {
		name string
		test func(*suite)
	}{
		// These wait for the end of a TTL. They begin first, so that the others run meanwhile.
		{"ALeaseRenewsItself", aLeaseRenewsItself},
		{"TokensGrowPastAnExpiry", tokensGrowPastAnExpiry},
		{"ALeaseEndsBeforeTheNextBegins", aLeaseEndsBeforeTheNextBegins},
		{"ReleaseFreesOnlyItsOwn", releaseFreesOnlyItsOwn},

		{"OneHolderAtATime", oneHolderAtATime},
		{"ARefusalNamesTheHolder", aRefusalNamesTheHolder},
		{"SeveralKeysAllOrNothing", severalKeysAllOrNothing},
		{"KeysCountOnceInAnyOrder", keysCountOnceInAnyOrder},
		{"HostileKeysAreKeptApart", hostileKeysAreKeptApart},
		{"TokensGrow", tokensGrow},
		{"TokensGrowWhileALeaseIsHandedOff", tokensGrowWhileALeaseIsHandedOff},
		{"RenewExtends", renewExtends},
		{"ReleaseWorksAfterTheContextHasEnded", releaseWorksAfterTheContextHasEnded},
		{"AFailedAttemptLeavesNothing", aFailedAttemptLeavesNothing},
		{"ASubscriptionReachesTheReleaser", aSubscriptionReachesTheReleaser},
		{"ASubscriptionOutlivesTheHolder", aSubscriptionOutlivesTheHolder},
		{"AReleaseNotifiesWatches", aReleaseNotifiesWatches},
		{"BadInputIsRefused", badInputIsRefused},
		{"RenewReportsALostLock", renewReportsALostLock},
		{"RenewReportsAPartlyLostLock", renewReportsAPartlyLostLock},
		{"RenewLeavesTheNextHolderAlone", renewLeavesTheNextHolderAlone},
		{"ReleaseReportsALostLock", releaseReportsALostLock},
		{"ReleaseReportsALockThatAnotherHolderHad", releaseReportsALockThatAnotherHolderHad},
		{"ReleaseFreesWhatIsLeft", releaseFreesWhatIsLeft},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := h.Run
			if run == nil {
				run = func(t *testing.T, test func(*testing.T)) { test(t) }
			}
			var skipped string
			run(t, func(t *testing.T) {
				prefix := fmt.Sprintf("%s/%d/%d", t.Name(), time.Now().UnixNano(), sequence.Add(1))
				tt.test(&suite{T: t, h: h, prefix: prefix, skipped: &skipped})
			})
			if skipped != "" { // a test within synctest.Test skips that only
				t.Skip(skipped)
			}
		})
	}
}

var sequence atomic.Int64

// short has the shortest allowed TTL, for tests that wait for its end.
var short = locking.Options{TTL: locking.MinTTL}

// renewed has a TTL of which a machine that stops for two seconds leaves enough for a renewal.
var renewed = locking.Options{TTL: 4 * time.Second}

// limit bounds every call and every wait for an event.
const limit = 20 * time.Second

// poll is the shortest pause between two attempts to acquire.
const poll = 5 * time.Millisecond

type suite struct {
	*testing.T
	h       Harness
	prefix  string
	skipped *string // why the test was skipped
}

// skip skips the test.
func (s *suite) skip(why string) {
	s.Helper()
	*s.skipped = why
	s.Skip(why)
}

// Context returns a context for one call. It ends with the test, or after limit.
func (s *suite) Context() context.Context {
	ctx, cancel := context.WithTimeout(s.T.Context(), limit)
	s.Cleanup(cancel)
	return ctx
}

// locker returns a Locker with its own client of the backend.
func (s *suite) locker() locking.Locker { return s.h.New(s.T) }

// key returns a business key of this test alone.
func (s *suite) key(name string) string { return s.prefix + "/" + name }

// attempt makes an attempt that must be granted or refused. It repeats the attempt while the backend is unavailable, or
// its answer comes after the end of the lease, either of which may happen on a busy machine.
func (s *suite) attempt(l locking.Locker, opts locking.Options, keys []string) (*locking.Lease, error) {
	for began := time.Now(); ; pass(poll) {
		lease, err := l.Acquire(s.Context(), keys, opts)
		busy := errors.Is(err, locking.ErrUnavailable) || errors.Is(err, locking.ErrLost)
		if !busy || time.Since(began) > limit {
			return lease, err
		}
	}
}

// acquire takes keys that must be free and releases them with the test.
func (s *suite) acquire(l locking.Locker, opts locking.Options, keys ...string) *locking.Lease {
	s.Helper()
	lease, err := s.attempt(l, opts, keys)
	if err != nil {
		s.Fatalf("acquire %q: %v", keys, err)
	}
	s.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// refused makes an attempt that must be refused.
func (s *suite) refused(l locking.Locker, opts locking.Options, keys ...string) {
	s.Helper()
	_ = s.refusal(l, opts, keys...)
}

// refusal makes an attempt that must be refused, and returns the refusal.
func (s *suite) refusal(l locking.Locker, opts locking.Options, keys ...string) *locking.HeldError {
	s.Helper()
	lease, err := s.attempt(l, opts, keys)
	if lease != nil {
		s.Fatalf("acquired %q, which another holds", keys)
	}
	held, ok := errors.AsType[*locking.HeldError](err)
	if !ok || !errors.Is(err, locking.ErrHeld) {
		s.Fatalf("acquire %q: %v, want a HeldError that matches ErrHeld", keys, err)
	}
	return held
}

// release gives a lease back that must still be good.
func (s *suite) release(lease *locking.Lease) {
	s.Helper()
	if err := lease.Release(s.Context()); err != nil {
		s.Fatalf("release: %v", err)
	}
}

// fence returns the token of one key.
func (s *suite) fence(lease *locking.Lease, key string) int64 {
	s.Helper()
	token, err := lease.FenceOf(s.Context(), key)
	if err != nil {
		s.Fatalf("fence of %q: %v", key, err)
	}
	return token
}

// eventually tries to acquire until it succeeds.
func (s *suite) eventually(l locking.Locker, keys ...string) *locking.Lease {
	s.Helper()
	return s.retry(l, func(*locking.HeldError) time.Duration { return poll }, keys)
}

// onceExpired tries to acquire keys until their TTL ends, with ever shorter pauses.
func (s *suite) onceExpired(l locking.Locker, keys ...string) *locking.Lease {
	s.Helper()
	return s.retry(l, func(held *locking.HeldError) time.Duration { return max(poll, held.Holder.Remaining/2) }, keys)
}

// retry tries to acquire until it succeeds, with a pause after each refusal.
func (s *suite) retry(l locking.Locker, pause func(*locking.HeldError) time.Duration, keys []string) *locking.Lease {
	s.Helper()
	for began := time.Now(); time.Since(began) < limit; {
		lease, err := s.attempt(l, locking.Options{}, keys)
		if err == nil {
			s.Cleanup(func() { _ = lease.Release(context.Background()) })
			return lease
		}
		held, ok := errors.AsType[*locking.HeldError](err)
		if !ok || !errors.Is(err, locking.ErrHeld) {
			s.Fatalf("acquire %q: %v", keys, err)
		}
		pass(min(pause(held), limit-time.Since(began)))
	}
	s.Fatalf("%q did not become free within %v", keys, limit)
	return nil
}

// pass waits, in virtual time where the test runs in it.
func pass(d time.Duration) { <-time.After(d) }

// lost waits for the end of a lease.
func (s *suite) lost(lease *locking.Lease) {
	s.Helper()
	select {
	case <-lease.Done():
	case <-time.After(limit):
		s.Fatalf("the lease did not end within %v", limit)
	}
}
