package locking

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidityIsTheTTLLessTheDrift(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:      988 * time.Millisecond,
		30 * time.Second: 29698 * time.Millisecond,
		54 * time.Second: 53458 * time.Millisecond,
	} {
		if got := validity(ttl); got != want {
			t.Errorf("validity(%v) = %v, want %v", ttl, got, want)
		}
	}
}

func TestNextStepOfATerm(t *testing.T) {
	t.Parallel()
	const s = time.Second
	fresh := newTerm(30*s, 100*s, 0) // until 29.698 s, first renewal at 10 s
	short := newTerm(30*s, 30*s, 0)  // MaxHold is the TTL: no renewal can extend it
	hasty := newTerm(30*s, 100*s, 1)
	late := term{ttl: 30 * s, maxHold: 100 * s, until: 90 * s, nextRenew: 80 * s}
	for name, tt := range map[string]struct {
		term term
		now  time.Duration
		want step
	}{
		"at first it sleeps to the renewal": {fresh, 0, step{sleep: 10 * s}},
		"it wakes for the renewal": {
			fresh, 9750 * time.Millisecond,
			step{sleep: 250 * time.Millisecond},
		},
		"a third of the TTL is over":              {fresh, 10 * s, step{renew: true, ttl: 30 * s}},
		"a hasty one first after a quarter of it": {hasty, 2500 * time.Millisecond, step{renew: true, ttl: 30 * s}},
		"and not before":                          {hasty, 2 * s, step{sleep: 500 * time.Millisecond}},
		"later ones a tenth earlier":              {hasty.renewed(5*s, 30*s), 14 * s, step{renew: true, ttl: 30 * s}},
		"and not before that":                     {hasty.renewed(5*s, 30*s), 12 * s, step{sleep: 2 * s}},
		"a renewal that is late is still due":     {fresh, 29 * s, step{renew: true, ttl: 30 * s}},
		"one moment before the end":               {fresh, validity(30*s) - 1, step{renew: true, ttl: 30 * s}},
		"the end":                                 {fresh, validity(30 * s), step{lost: LossExpired}},
		"long after the end":                      {fresh, 1000 * s, step{lost: LossExpired}},
		"the last renewal goes up to MaxHold":     {late, 85 * s, step{renew: true, ttl: 15 * s}},
		"no renewal of a capped term":             {short, 20 * s, step{sleep: validity(30*s) - 20*s}},
		"it wakes for the end of a capped term": {
			short, 29500 * time.Millisecond,
			step{sleep: 198 * time.Millisecond},
		},
		"the end of a capped term is by MaxHold": {short, validity(30 * s), step{lost: LossMaxHold}},
	} {
		if got := tt.term.next(tt.now); got != tt.want {
			t.Errorf("%s: next(%v) = %+v, want %+v", name, tt.now, got, tt.want)
		}
	}
}

func TestRenewalsAndFailuresChangeATerm(t *testing.T) {
	t.Parallel()
	const s = time.Second
	fresh := newTerm(30*s, 100*s, 0)
	for name, tt := range map[string]struct {
		got  term
		want term
	}{
		"a renewal counts from when it was sent": {
			fresh.renewed(10*s, 30*s),
			term{ttl: 30 * s, maxHold: 100 * s, until: 10*s + validity(30*s), nextRenew: 20 * s},
		},
		"the later of two renewals counts, whichever answers last": {
			fresh.renewed(12*s, 30*s).renewed(10*s, 30*s),
			term{ttl: 30 * s, maxHold: 100 * s, until: 12*s + validity(30*s), nextRenew: 20 * s},
		},
		"a renewal up to MaxHold caps the term": {
			fresh.renewed(20*s, 30*s).renewed(40*s, 30*s).renewed(80*s, 20*s),
			term{ttl: 30 * s, maxHold: 100 * s, until: 80*s + validity(20*s), nextRenew: 90 * s, capped: true},
		},
		"a failure is repeated after a twentieth of the TTL and changes nothing else": {
			fresh.failed(11 * s),
			term{ttl: 30 * s, maxHold: 100 * s, until: validity(30 * s), nextRenew: 12500 * time.Millisecond},
		},
		"so does a hasty one, somewhat earlier": {
			newTerm(30*s, 100*s, 0.2).failed(11 * s),
			term{
				ttl: 30 * s, maxHold: 100 * s, haste: 0.2, until: validity(30 * s),
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
		ttl := duration(MinTTL, 10*time.Minute).Draw(t, "ttl")
		maxHold := duration(ttl, 20*ttl).Draw(t, "maxHold")
		tm, now := newTerm(ttl, maxHold, rapid.Float64Range(0, 1).Draw(t, "haste")), time.Duration(0)
		trusted := validity(ttl)         // the latest end of any lock that a server has granted
		attempt := ttl / renewFraction   // when the next renewal must begin at the latest
		renew := func(d time.Duration) { // one renewal for d, sent now
			sent := now
			if d <= 0 || d > ttl || sent+d > maxHold {
				t.Fatalf("at %v a renewal for %v, beyond the TTL or MaxHold", sent, d)
			}
			now += rapid.OneOf(rapid.Just(time.Duration(0)), duration(0, ttl/renewFraction), duration(0, 2*ttl)).Draw(t,
				"latency")
			if rapid.Bool().Draw(t, "success") {
				tm = tm.renewed(sent, d)
				trusted = max(trusted, sent+validity(d))
				attempt = sent + ttl/renewFraction
			} else {
				tm = tm.failed(now)
				attempt = now + ttl/retryFraction
			}
		}
		for range 300 {
			next := tm.next(now)
			switch {
			case tm.until > maxHold:
				t.Fatalf("trusted until %v, MaxHold is %v", tm.until, maxHold)
			case tm.until > trusted:
				t.Fatalf("trusted until %v, the last lock may end at %v", tm.until, trusted)
			case (next.lost != "") != (now >= tm.until):
				t.Fatalf("at %v of %v: lost %q", now, tm.until, next.lost)
			case next.lost == LossMaxHold && tm.until < maxHold-(ttl-validity(ttl)):
				t.Fatalf("lost by MaxHold at %v, long before %v", tm.until, maxHold)
			case next.lost != "":
				return
			case next.renew:
				renew(next.ttl)
			case next.sleep <= 0 || next.sleep > tm.until-now:
				t.Fatalf("at %v it sleeps for %v, the lease ends at %v", now, next.sleep, tm.until)
			case !tm.capped && now+next.sleep > attempt:
				t.Fatalf("at %v it sleeps for %v, past the renewal that is due at %v", now, next.sleep, attempt)
			case !tm.capped && rapid.IntRange(0, 9).Draw(t, "by the holder") == 0:
				renew(min(ttl, maxHold-now))
			case rapid.IntRange(0, 19).Draw(t, "suspended") == 0:
				now += next.sleep + duration(0, ttl).Draw(t, "for")
			default:
				now += next.sleep
			}
		}
	})
}

// TestRenewalsThatSucceedReachMaxHold says that renewals do not stop early.
func TestRenewalsThatSucceedReachMaxHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ttl := duration(MinTTL, 10*time.Minute).Draw(t, "ttl")
		maxHold := duration(ttl, 50*ttl).Draw(t, "maxHold")
		tm, now := newTerm(ttl, maxHold, rapid.Float64Range(0, 1).Draw(t, "haste")), time.Duration(0)
		for range 100_000 {
			next := tm.next(now)
			if next.lost != "" {
				if least := maxHold - (ttl - validity(ttl)); next.lost != LossMaxHold || now < least {
					t.Fatalf("lost at %v of %v: %s", now, maxHold, next.lost)
				}
				return
			}
			if next.renew {
				sent := now
				now += duration(0, ttl/renewFraction).Draw(t, "latency")
				tm = tm.renewed(sent, next.ttl)
			}
			now += next.sleep
		}
		t.Fatal("the lease has no end")
	})
}

func duration(least, most time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.Int64Range(int64(least), int64(most)),
		func(n int64) time.Duration { return time.Duration(n) })
}
