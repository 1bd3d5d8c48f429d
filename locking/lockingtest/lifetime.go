package lockingtest

import (
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/locking"
)

func tokensGrow(s *suite) {
	lockers := []locking.Locker{s.locker(), s.locker()}
	one, two := s.key("1"), s.key("2")
	last := map[string]int64{}
	for i := range 50 {
		keys := [][]string{{one}, {one, two}, {two}}[i%3]
		lease := s.acquire(lockers[i%2], locking.Options{}, keys...)
		for _, key := range keys {
			token := s.fence(lease, key)
			if token <= last[key] || token >= 1<<53 {
				s.Fatalf("token %d of %q after %d", token, key, last[key])
			}
			last[key] = token
			if again := s.fence(lease, key); again != token {
				s.Fatalf("the token changed from %d to %d", token, again)
			}
		}
		if first, err := lease.Fence(s.Context()); err != nil || first != last[keys[0]] {
			s.Fatalf("Fence() = %d, %v; want the first key's token %d", first, err, last[keys[0]])
		}
		s.release(lease)
	}
}

func tokensGrowPastAnExpiry(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	opts := locking.Options{TTL: 2 * time.Second, MaxHold: 2 * time.Second}
	first := s.fence(s.acquire(a, opts, key), key)
	if second := s.fence(s.onceExpired(b, key), key); second <= first {
		s.Errorf("token %d after %d", second, first)
	}
}

func aLeaseRenewsItself(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	lease := s.acquire(a, renewed, key)
	for began := time.Now(); time.Since(began) < renewed.TTL*3/2; pass(200 * time.Millisecond) {
		s.refused(b, locking.Options{}, key)
		if err := lease.Err(); err != nil {
			s.Fatalf("the lease ended: %v", err)
		}
	}
	s.release(lease)
	if err := lease.Err(); !errors.Is(err, locking.ErrReleased) {
		s.Errorf("after the release Err is %v", err)
	}
}

func aLeaseEndsBeforeTheNextBegins(s *suite) {
	a, b, key := s.locker(), s.locker(), s.key("order")
	opts := short
	opts.MaxHold = opts.TTL + opts.TTL/2
	lease := s.acquire(a, opts, key)
	ctx := lease.Context(s.Context())
	s.onceExpired(b, key)
	if err := lease.Err(); !errors.Is(err, locking.ErrLost) {
		s.Errorf("another has the key and Err is %v, want ErrLost", err)
	}
	s.lost(lease)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, locking.ErrLost) {
		s.Errorf("the cause of the context is %v, want ErrLost", cause)
	}
	if err := lease.Renew(s.Context()); !errors.Is(err, locking.ErrLost) {
		s.Errorf("Renew of a lost lease says %v, want ErrLost", err)
	}
}

func renewExtends(s *suite) {
	l, key := s.locker(), s.key("order")
	lease := s.acquire(l, renewed, key)
	before := lease.ValidUntil()
	pass(200 * time.Millisecond)
	if err := lease.Renew(s.Context()); err != nil {
		s.Fatal(err)
	}
	if after := lease.ValidUntil(); !after.After(before) {
		s.Errorf("valid until %v, before the renewal until %v", after, before)
	}
	s.release(lease)
	if err := lease.Renew(s.Context()); !errors.Is(err, locking.ErrReleased) {
		s.Errorf("Renew after the release says %v, want ErrReleased", err)
	}
}
