package locking

import (
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// Timing of a lease, measured from before the first request of the acquisition was sent.
const (
	renewFraction = 3    // a lease is renewed after 1/3 of its TTL
	retryFraction = 20   // and after another 1/20 if that renewal failed
	leastFraction = 3    // a holder begins with 1/3 of its TTL or more
	jitter        = 0.1  // the largest share of such a time by which a renewal comes early
	spread        = 0.75 // the same, for the first renewal and after a failed one
)

// validity returns how long a lock with this TTL may be trusted, counted from before its request was sent.
func validity(ttl time.Duration) time.Duration { return quorum.Validity(ttl) }

// anyHaste returns how early a lease renews, from 0 to 1. It differs from lease to lease, so that leases that began
// together, or waited for the same server, do not renew together for long.
func anyHaste() float64 { return rand.Float64() }

// term is the time of a lease, measured from its beginning.
type term struct {
	ttl       time.Duration
	maxHold   time.Duration
	haste     float64       // how early it renews, from 0 to 1
	until     time.Duration // when the lease ends
	nextRenew time.Duration
	capped    bool // until is MaxHold, so no renewal can extend it
}

// newTerm returns the term of a new lease. Its first renewal is due after a twelfth to a third of the TTL: servers get
// renewals before attempts, so leases that began together must not renew together.
func newTerm(ttl, maxHold time.Duration, haste float64) term {
	t := term{ttl: ttl, maxHold: maxHold, haste: haste}.renewed(0, ttl)
	t.nextRenew = t.soon(ttl/renewFraction, spread)
	return t
}

// step is what a lease does next.
type step struct {
	renew bool
	ttl   time.Duration // of the renewal
	lost  LossReason    // why the lease is over; empty while it is not
	sleep time.Duration // when to look again, if neither
}

// next returns what a lease does at the time now.
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
	if t.capped {
		return step{sleep: t.until - now}
	}
	return step{sleep: min(t.until, t.nextRenew) - now}
}

// endsSoon reports whether less than a third of the TTL is left at the time now: too little for a new holder to begin.
func (t term) endsSoon(now time.Duration) bool { return t.until-now < t.ttl/leastFraction }

// renewed returns the term after a renewal for ttl that was sent at the time sent.
func (t term) renewed(sent, ttl time.Duration) term {
	t.until = max(t.until, sent+validity(ttl))
	if t.until >= t.maxHold || sent+ttl >= t.maxHold {
		t.until, t.capped = min(t.until, t.maxHold), true
	}
	t.nextRenew = sent + t.soon(t.ttl/renewFraction, jitter)
	return t
}

// failed returns the term after an undecided renewal.
func (t term) failed(now time.Duration) term {
	t.nextRenew = now + t.soon(t.ttl/retryFraction, spread)
	return t
}

// soon returns d, shortened by the lease's haste: by the share at most.
func (t term) soon(d time.Duration, share float64) time.Duration {
	return d - time.Duration(t.haste*share*float64(d))
}

// handedOff returns the term of the next holder, which gets the lease at the time now.
func (t term) handedOff(now, maxHold time.Duration) term {
	t.maxHold = now + maxHold
	t.until = min(t.until, t.maxHold)
	t.capped = t.until == t.maxHold
	return t
}
