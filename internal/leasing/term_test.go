package leasing

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/railtoken/railtoken/internal/quorum"
)

// minTTL is locking.MinTTL.
const minTTL = time.Second

func TestNextStepOfATerm(t *testing.T) {
	t.Parallel()
	const s = time.Second
	fresh := NewTerm(30*s, 100*s, 0) // until 29.698 s, first renewal at 10 s
	short := NewTerm(30*s, 30*s, 0)  // MaxHold is the TTL: no renewal can extend it
	hasty := NewTerm(30*s, 100*s, 1)
	late := Term{TTL: 30 * s, MaxHold: 100 * s, Until: 90 * s, nextRenew: 80 * s}
	for name, tt := range map[string]struct {
		term Term
		now  time.Duration
		want Step
	}{
		"at first it sleeps to the renewal": {fresh, 0, Step{Sleep: 10 * s}},
		"it wakes for the renewal": {
			fresh, 9750 * time.Millisecond,
			Step{Sleep: 250 * time.Millisecond},
		},
		"a third of the TTL is over":              {fresh, 10 * s, Step{Renew: true, TTL: 30 * s}},
		"a hasty one first after a quarter of it": {hasty, 2500 * time.Millisecond, Step{Renew: true, TTL: 30 * s}},
		"and not before":                          {hasty, 2 * s, Step{Sleep: 500 * time.Millisecond}},
		"later ones a tenth earlier":              {hasty.Renewed(5*s, 30*s), 14 * s, Step{Renew: true, TTL: 30 * s}},
		"and not before that":                     {hasty.Renewed(5*s, 30*s), 12 * s, Step{Sleep: 2 * s}},
		"a renewal that is late is still due":     {fresh, 29 * s, Step{Renew: true, TTL: 30 * s}},
		"one moment before the end":               {fresh, quorum.Validity(30*s) - 1, Step{Renew: true, TTL: 30 * s}},
		"the end":                                 {fresh, quorum.Validity(30 * s), Step{End: Expired}},
		"long after the end":                      {fresh, 1000 * s, Step{End: Expired}},
		"the last renewal goes up to MaxHold":     {late, 85 * s, Step{Renew: true, TTL: 15 * s}},
		"no renewal of a capped term":             {short, 20 * s, Step{Sleep: quorum.Validity(30*s) - 20*s}},
		"it wakes for the end of a capped term": {
			short, 29500 * time.Millisecond,
			Step{Sleep: 198 * time.Millisecond},
		},
		"the end of a capped term is by MaxHold": {short, quorum.Validity(30 * s), Step{End: HeldLongest}},
	} {
		if got := tt.term.Next(tt.now); got != tt.want {
			t.Errorf("%s: Next(%v) = %+v, want %+v", name, tt.now, got, tt.want)
		}
	}
}

func TestRenewalsAndFailuresChangeATerm(t *testing.T) {
	t.Parallel()
	const s = time.Second
	fresh := NewTerm(30*s, 100*s, 0)
	for name, tt := range map[string]struct {
		got  Term
		want Term
	}{
		"a renewal counts from when it was sent": {
			fresh.Renewed(10*s, 30*s),
			Term{TTL: 30 * s, MaxHold: 100 * s, Until: 10*s + quorum.Validity(30*s), nextRenew: 20 * s},
		},
		"the later of two renewals counts, whichever answers last": {
			fresh.Renewed(12*s, 30*s).Renewed(10*s, 30*s),
			Term{TTL: 30 * s, MaxHold: 100 * s, Until: 12*s + quorum.Validity(30*s), nextRenew: 20 * s},
		},
		"a renewal up to MaxHold caps the term": {
			fresh.Renewed(20*s, 30*s).Renewed(40*s, 30*s).Renewed(80*s, 20*s),
			Term{TTL: 30 * s, MaxHold: 100 * s, Until: 80*s + quorum.Validity(20*s), nextRenew: 90 * s, Capped: true},
		},
		"a failure is repeated after a twentieth of the TTL and changes nothing else": {
			fresh.Failed(11 * s),
			Term{TTL: 30 * s, MaxHold: 100 * s, Until: quorum.Validity(30 * s), nextRenew: 12500 * time.Millisecond},
		},
		"so does a hasty one, somewhat earlier": {
			NewTerm(30*s, 100*s, 0.2).Failed(11 * s),
			Term{
				TTL: 30 * s, MaxHold: 100 * s, haste: 0.2, Until: quorum.Validity(30 * s),
				nextRenew: 12275 * time.Millisecond,
			},
		},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.got, tt.want)
		}
	}
}

// TestATermKeepsItsPromisesWhateverHappens drives a term as a lease does, through renewals that succeed, fail, answer
// late, or are asked for by the holder, and through time that jumps.
func TestATermKeepsItsPromisesWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ttl := duration(minTTL, 10*time.Minute).Draw(t, "ttl")
		maxHold := duration(ttl, 20*ttl).Draw(t, "maxHold")
		tm, now := NewTerm(ttl, maxHold, rapid.Float64Range(0, 1).Draw(t, "haste")), time.Duration(0)
		trusted := quorum.Validity(ttl)  // the latest end of any lock that a server has granted
		attempt := ttl / RenewFraction   // when the next renewal must begin at the latest
		renew := func(d time.Duration) { // one renewal for d, sent now
			sent := now
			if d <= 0 || d > ttl || sent+d > maxHold {
				t.Fatalf("at %v a renewal for %v, beyond the TTL or MaxHold", sent, d)
			}
			now += rapid.OneOf(rapid.Just(time.Duration(0)), duration(0, ttl/RenewFraction), duration(0, 2*ttl)).Draw(t,
				"latency")
			if rapid.Bool().Draw(t, "success") {
				tm = tm.Renewed(sent, d)
				trusted = max(trusted, sent+quorum.Validity(d))
				attempt = sent + ttl/RenewFraction
			} else {
				tm = tm.Failed(now)
				attempt = now + ttl/retryFraction
			}
		}
		for range 300 {
			next := tm.Next(now)
			switch {
			case tm.Until > maxHold:
				t.Fatalf("trusted until %v, MaxHold is %v", tm.Until, maxHold)
			case tm.Until > trusted:
				t.Fatalf("trusted until %v, the last lock may end at %v", tm.Until, trusted)
			case (next.End != Lasts) != (now >= tm.Until):
				t.Fatalf("at %v of %v: lost by %d", now, tm.Until, next.End)
			case next.End == HeldLongest && tm.Until < maxHold-(ttl-quorum.Validity(ttl)):
				t.Fatalf("lost by MaxHold at %v, long before %v", tm.Until, maxHold)
			case next.End != Lasts:
				return
			case next.Renew:
				renew(next.TTL)
			case next.Sleep <= 0 || next.Sleep > tm.Until-now:
				t.Fatalf("at %v it sleeps for %v, the lease ends at %v", now, next.Sleep, tm.Until)
			case !tm.Capped && now+next.Sleep > attempt:
				t.Fatalf("at %v it sleeps for %v, past the renewal that is due at %v", now, next.Sleep, attempt)
			case !tm.Capped && rapid.IntRange(0, 9).Draw(t, "by the holder") == 0:
				renew(min(ttl, maxHold-now))
			case rapid.IntRange(0, 19).Draw(t, "suspended") == 0:
				now += next.Sleep + duration(0, ttl).Draw(t, "for")
			default:
				now += next.Sleep
			}
		}
	})
}

// TestRenewalsThatSucceedReachMaxHold says that renewals do not stop early.
func TestRenewalsThatSucceedReachMaxHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ttl := duration(minTTL, 10*time.Minute).Draw(t, "ttl")
		maxHold := duration(ttl, 50*ttl).Draw(t, "maxHold")
		tm, now := NewTerm(ttl, maxHold, rapid.Float64Range(0, 1).Draw(t, "haste")), time.Duration(0)
		for range 100_000 {
			next := tm.Next(now)
			if next.End != Lasts {
				if least := maxHold - (ttl - quorum.Validity(ttl)); next.End != HeldLongest || now < least {
					t.Fatalf("lost at %v of %v by %d", now, maxHold, next.End)
				}
				return
			}
			if next.Renew {
				sent := now
				now += duration(0, ttl/RenewFraction).Draw(t, "latency")
				tm = tm.Renewed(sent, next.TTL)
			}
			now += next.Sleep
		}
		t.Fatal("the lease has no end")
	})
}

func duration(least, most time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(int64(least), int64(most)),
		func(n int64) time.Duration { return time.Duration(n) })
}
