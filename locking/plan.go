package locking

import (
	"time"

	"github.com/railtoken/railtoken/locking/internal/quorum"
)

// Timing of a lease. All of it is measured from before the first request of the acquisition was sent.
const (
	renewals = 3           // a lease is renewed each 1/3 of its TTL
	retries  = 20          // and after a failed renewal each 1/20
	maxTick  = time.Second // how often at least the wall clock is looked at
)

// validity returns how long a lock with that TTL may be trusted, counted from before its request was sent.
func validity(ttl time.Duration) time.Duration { return quorum.Validity(ttl) }

// term is what a lease knows of its own time.
type term struct {
	ttl       time.Duration
	maxHold   time.Duration
	until     time.Duration // the lease is trusted before this time
	nextRenew time.Duration
	capped    bool // renewed up to MaxHold: no renewal can extend it
}

// newTerm returns the term of a lease that has just been taken.
func newTerm(ttl, maxHold time.Duration) term {
	t := term{ttl: ttl, maxHold: maxHold}
	return t.renewed(0, ttl)
}

// step is what a lease does next.
type step struct {
	renew bool
	ttl   time.Duration // of the renewal
	lost  LossReason    // not empty: the lease is over
	sleep time.Duration // else: look again after this time
}

// next decides what a lease does at the time now.
func (t term) next(now time.Duration) step {
	if now >= t.until {
		if t.capped {
			return step{lost: LossMaxHold}
		}
		return step{lost: LossExpired}
	}
	if !t.capped && now >= t.nextRenew {
		return step{renew: true, ttl: min(t.ttl, t.maxHold-now)}
	}
	sleep := min(t.until-now, maxTick)
	if !t.capped {
		sleep = min(sleep, t.nextRenew-now)
	}
	return step{sleep: sleep}
}

// renewed returns the term after a renewal for ttl that was sent at the time sent.
func (t term) renewed(sent, ttl time.Duration) term {
	t.until = max(t.until, sent+validity(ttl))
	if t.until >= t.maxHold || sent+ttl >= t.maxHold {
		t.until, t.capped = min(t.until, t.maxHold), true
	}
	t.nextRenew = sent + t.ttl/renewals
	return t
}

// failed returns the term after a renewal that could not be decided.
func (t term) failed(now time.Duration) term {
	t.nextRenew = now + t.ttl/retries
	return t
}

// passedOn returns the term of the next holder, who gets the lease at the time now.
func (t term) passedOn(now, maxHold time.Duration) term {
	t.maxHold = now + maxHold
	t.until = min(t.until, t.maxHold)
	t.capped = t.until == t.maxHold
	return t
}
