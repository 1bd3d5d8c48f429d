package lockingtest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/railtoken/railtoken/locking"
)

func oneHolderAtATime(s *suite) {
	const workers, rounds = 8, 25
	key := s.key("hot")
	counter, inside := 0, 0 // guarded by the lock under test alone: the race detector watches as well
	var wg sync.WaitGroup
	for range workers {
		l := s.locker()
		wg.Go(func() {
			for range rounds {
				lease := s.eventually(l, key)
				inside++
				if inside != 1 {
					s.Errorf("%d holders at a time", inside)
				}
				runtime.Gosched()
				counter++
				inside--
				if err := lease.Release(s.Context()); err != nil {
					s.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if counter != workers*rounds {
		s.Errorf("counted %d, want %d", counter, workers*rounds)
	}
}

func aRefusalNamesTheHolder(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	before := time.Now().Add(-time.Second)
	lease := s.acquire(a, locking.Options{TTL: 20 * time.Second, Label: "host-7/41/order:audit"}, key)
	token := s.fence(lease, key) // once it is certain, refusals tell it
	held := s.refusal(b, locking.Options{}, key)
	if held.Key != key {
		s.Errorf("the refusal names key %q, want %q", held.Key, key)
	}
	h := held.Holder
	if h.Label != "host-7/41/order:audit" {
		s.Errorf("holder label %q, want the one it gave", h.Label)
	}
	if h.Since.Before(before) || h.Since.After(time.Now().Add(time.Second)) {
		s.Errorf("held since %v, want about now", h.Since)
	}
	if h.Remaining <= 0 || h.Remaining > 20*time.Second {
		s.Errorf("%v remain, want more than 0 and at most the TTL", h.Remaining)
	}
	if h.Fence != token {
		s.Errorf("the refusal tells token %d, the holder has %d", h.Fence, token)
	}
	s.release(lease)
	s.release(s.acquire(b, locking.Options{}, key))
}

func severalKeysAllOrNothing(s *suite) {
	a, b := s.locker(), s.locker()
	one, two, three := s.key("1"), s.key("2"), s.key("3")
	middle := s.acquire(a, locking.Options{}, two)
	if held := s.refusal(b, locking.Options{}, one, two, three); held.Key != two {
		s.Errorf("refused for %q, want %q", held.Key, two)
	}
	s.release(s.acquire(b, locking.Options{}, one, three)) // nothing of the refused attempt is left
	s.release(middle)
	all := s.acquire(b, locking.Options{}, one, two, three)
	for _, key := range []string{one, two, three} {
		s.refused(a, locking.Options{}, key)
	}
	s.release(all)
	for _, key := range []string{one, two, three} {
		s.release(s.acquire(a, locking.Options{}, key))
	}
}

func keysCountOnceInAnyOrder(s *suite) {
	l := s.locker()
	one, two := s.key("1"), s.key("2")
	lease := s.acquire(l, locking.Options{}, two, one, two)
	if got := lease.Keys(); len(got) != 2 || got[0] != one || got[1] != two {
		s.Errorf("the lease is for %q, want %q", got, []string{one, two})
	}
	if _, err := lease.FenceOf(s.Context(), s.key("other")); err == nil {
		s.Error("a token for a key that the lease is not for")
	}
}

func hostileKeysAreKeptApart(s *suite) {
	l := s.locker()
	keys := []string{
		"", "{", "}", "{}", "}{", "%", "%7B", ":", "a:b", "a{b}c", "{a}b", "\x00", "a\r\nb", "ä", "\xff\xfe",
		strings.Repeat("x", 10_000), strings.Repeat("{", 10_000),
	}
	leases := make([]*locking.Lease, len(keys))
	for i, key := range keys {
		leases[i] = s.acquire(l, locking.Options{}, s.prefix+key)
	}
	for i, key := range keys {
		s.refused(l, locking.Options{}, s.prefix+key)
		if err := leases[i].Renew(s.Context()); err != nil {
			s.Errorf("renew %.20q: %v", key, err)
		}
		s.release(leases[i])
	}
	s.release(s.eventually(l, "")) // the empty key itself, which other tests may use too
}

func releaseFreesOnlyItsOwn(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	opts := short
	opts.MaxHold = opts.TTL // not renewed, as if its holder had crashed
	late := s.acquire(a, opts, key)
	next := s.onceExpired(b, key)
	if err := late.Release(s.Context()); !errors.Is(err, locking.ErrLost) {
		s.Errorf("the release of a lost lease says %v, want ErrLost", err)
	}
	if err := late.Release(s.Context()); !errors.Is(err, locking.ErrLost) {
		s.Errorf("the second release says %v, want what the first said", err)
	}
	s.refused(a, locking.Options{}, key)
	s.release(next)
	if err := next.Release(s.Context()); err != nil {
		s.Errorf("the second release says %v, want what the first said", err)
	}
	other := s.acquire(a, locking.Options{}, key)
	_ = next.Release(s.Context())
	s.refused(b, locking.Options{}, key)
	s.release(other)
}

func releaseWorksAfterTheContextHasEnded(s *suite) {
	l, key := s.locker(), s.key("order")
	lease := s.acquire(l, locking.Options{}, key)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := lease.Release(ctx); err != nil {
		s.Errorf("release: %v", err)
	}
	s.release(s.acquire(l, locking.Options{}, key))
}

func aFailedAttemptLeavesNothing(s *suite) {
	l := s.locker()
	one, two := s.key("1"), s.key("2")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if lease, err := l.Acquire(ctx, []string{one, two}, locking.Options{}); lease != nil || err == nil {
		s.Fatalf("acquired with a context that has ended (error %v)", err)
	} else if errors.Is(err, locking.ErrHeld) {
		s.Errorf("the error %v says that the key is held, which no one does", err)
	}
	s.release(s.acquire(l, locking.Options{}, one, two))
}

func aSubscriptionReachesTheReleaser(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.refused(b, locking.Options{Notify: time.Minute}, key)
	s.release(lease)
	if !lease.ShouldNotify() {
		s.Error("the releaser was not told of the subscription to its key")
	}
}

// The callers that have subscribed wait for the key, not for its holder: who comes between them tells them, too.
func aSubscriptionOutlivesTheHolder(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, locking.Options{}, key)
	s.refused(b, locking.Options{Notify: time.Minute}, key)
	s.release(lease)
	next := s.acquire(a, locking.Options{}, key)
	s.release(next)
	if !next.ShouldNotify() {
		s.Error("the next releaser was not told of the subscription to its key")
	}
}

func aReleaseNotifiesWatches(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	watcher, ok := b.(locking.Watcher)
	if !ok {
		s.skip("this Locker is no locking.Watcher: it does not notify of releases")
	}
	lease := s.acquire(a, locking.Options{}, key)
	released, stop, err := watcher.Watch(s.Context(), []string{s.key("other"), key})
	if err != nil {
		s.Fatal(err)
	}
	defer stop()
	// A watch may begin a moment after Watch has returned, so the release is repeated until the notification comes.
	for range 1000 {
		s.refused(b, locking.Options{Notify: time.Minute}, key)
		s.release(lease)
		select {
		case <-released:
			stop()
			return
		case <-time.After(20 * time.Millisecond):
		}
		lease = s.acquire(a, locking.Options{}, key)
	}
	s.Error("no notification of 1000 releases came")
}

func badInputIsRefused(s *suite) {
	l := s.locker()
	for name, attempt := range map[string]struct {
		keys []string
		opts locking.Options
	}{
		"no key":        {nil, locking.Options{}},
		"short TTL":     {[]string{s.key("k")}, locking.Options{TTL: time.Millisecond}},
		"negative TTL":  {[]string{s.key("k")}, locking.Options{TTL: -time.Minute}},
		"short MaxHold": {[]string{s.key("k")}, locking.Options{TTL: 10 * time.Second, MaxHold: time.Second}},
	} {
		if lease, err := l.Acquire(s.Context(), attempt.keys, attempt.opts); err == nil {
			s.Errorf("%s: acquired", name)
			_ = lease.Release(s.Context())
		} else if errors.Is(err, locking.ErrHeld) {
			s.Errorf("%s: the error %v says that the key is held", name, err)
		}
	}
}
