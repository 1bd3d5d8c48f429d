package leasing

import (
	"math/rand/v2"
	"time"

	"github.com/railtoken/railtoken/internal/quorum"
)

// Timing of a lease, measured from before the first request of the acquisition was sent.
const (
	RenewFraction = 3    // a lease is renewed after 1/3 of its TTL
	retryFraction = 20   // and after another 1/20 if that renewal failed
	leastFraction = 3    // a holder begins with 1/3 of its TTL or more
	jitter        = 0.1  // the largest share of such a time by which a renewal comes early
	spread        = 0.75 // the same, for the first renewal and after a failed one
)

// Haste returns how early a lease renews, from 0 to 1. It differs from lease to lease, so that leases that began
// together, or waited for the same server, do not renew together for long.
func Haste() float64 { return rand.Float64() }

// Term is the time of a lease, measured from its beginning.
type Term struct {
	TTL       time.Duration
	MaxHold   time.Duration
	Until     time.Duration // when the lease ends
	Capped    bool          // Until is MaxHold, so no renewal can extend it
	haste     float64       // how early it renews, from 0 to 1
	nextRenew time.Duration
}

// NewTerm returns the term of a new lease. Its first renewal is due after a twelfth to a third of the TTL: servers get
// renewals before attempts, so leases that began together must not renew together.
func NewTerm(ttl, maxHold time.Duration, haste float64) Term {
	t := Term{TTL: ttl, MaxHold: maxHold, haste: haste}.Renewed(0, ttl)
	t.nextRenew = t.soon(ttl/RenewFraction, spread)
	return t
}

// End is how a lease ends by its time.
type End int

// A lease lasts, or it ends because no renewal came in time, or because MaxHold is over.
const (
	Lasts End = iota
	Expired
	HeldLongest
)

// Step is what a lease does next.
type Step struct {
	Renew bool
	TTL   time.Duration // of the renewal
	End   End
	Sleep time.Duration // when to look again, if there is nothing to do
}

// Next returns what a lease does at the time now.
func (t Term) Next(now time.Duration) Step {
	if now >= t.Until {
		if t.Capped {
			return Step{End: HeldLongest}
		}
		return Step{End: Expired}
	}
	if !t.Capped && now >= t.nextRenew {
		return Step{Renew: true, TTL: min(t.TTL, t.MaxHold-now)}
	}
	if t.Capped {
		return Step{Sleep: t.Until - now}
	}
	return Step{Sleep: min(t.Until, t.nextRenew) - now}
}

// EndsSoon reports whether less than a third of the TTL is left at the time now: too little for a new holder to begin.
func (t Term) EndsSoon(now time.Duration) bool { return t.Until-now < t.TTL/leastFraction }

// Renewed returns the term after a renewal for ttl that was sent at the time sent.
func (t Term) Renewed(sent, ttl time.Duration) Term {
	t.Until = max(t.Until, sent+quorum.Validity(ttl))
	if t.Until >= t.MaxHold || sent+ttl >= t.MaxHold {
		t.Until, t.Capped = min(t.Until, t.MaxHold), true
	}
	t.nextRenew = sent + t.soon(t.TTL/RenewFraction, jitter)
	return t
}

// Failed returns the term after an undecided renewal.
func (t Term) Failed(now time.Duration) Term {
	t.nextRenew = now + t.soon(t.TTL/retryFraction, spread)
	return t
}

// soon returns d, shortened by the lease's haste: by the share at most.
func (t Term) soon(d time.Duration, share float64) time.Duration {
	return d - time.Duration(t.haste*share*float64(d))
}

// HandedOff returns the term of the next holder, which gets the lease at the time now.
func (t Term) HandedOff(now, maxHold time.Duration) Term {
	t.MaxHold = now + maxHold
	t.Until = min(t.Until, t.MaxHold)
	t.Capped = t.Until == t.MaxHold
	return t
}
