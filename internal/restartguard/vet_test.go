package restartguard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/restartguard"
)

const ttl = 30 * time.Second

var limits = restartguard.Limits{MaxTTL: ttl, MaxSkew: ttl / 4}

func TestVetDecides(t *testing.T) {
	t.Parallel()
	now := time.Now()
	old := func(mods ...func(*restartguard.Facts)) restartguard.Facts { return facts(now, time.Hour, mods...) }
	known := func(k restartguard.Known) restartguard.Known {
		if k.Seen.IsZero() {
			k.Seen, k.LastSeen, k.Born = now.Add(-time.Hour), now.Add(-time.Minute), now.Add(-2*time.Hour)
		}
		return k
	}
	for name, tt := range map[string]struct {
		facts  restartguard.Facts
		known  restartguard.Known
		others []string
		want   restartguard.Reason // empty when accepted
		until  time.Duration       // from now
	}{
		"watched for long":        {facts: old()},
		"watched for long enough": {facts: facts(now, ttl)},
		"watched for less":        {facts: facts(now, ttl-time.Second), want: restartguard.Young, until: time.Second},
		"old by its own account":  {facts: facts(now, 0), want: restartguard.Young, until: ttl},
		"seen long enough, whatever the clock says": {
			facts: facts(now, 0), known: known(restartguard.Known{RunID: idA, ReplID: idB}),
		},
		"seen for a while": {
			facts: facts(now, 0), want: restartguard.Young, until: ttl - 10*time.Second,
			known: restartguard.Known{
				RunID: idA, ReplID: idB, Seen: now.Add(-10 * time.Second),
				Born: now.Add(-10 * time.Second),
			},
		},
		"restarted": {
			facts: old(func(f *restartguard.Facts) { f.Uptime = 5 * time.Second }),
			known: known(restartguard.Known{RunID: idC}), want: restartguard.Young, until: ttl,
		},
		"restarted, as it says long ago": {
			facts: old(func(f *restartguard.Facts) { f.Uptime = 50 * time.Second }),
			known: known(restartguard.Known{RunID: idC}), want: restartguard.Young, until: ttl,
		},
		"restarted a while ago": {
			facts: facts(now, 50*time.Second), want: restartguard.Young, until: ttl - 10*time.Second,
			known: restartguard.Known{
				RunID: idA, ReplID: idB, Seen: now.Add(-10 * time.Second),
				Born: now.Add(-10 * time.Second),
			},
		},
		"another that was alive": {
			facts: old(), known: known(restartguard.Known{RunID: idC}), want: restartguard.Replaced,
			until: ttl,
		},
		"replica": {
			facts: old(func(f *restartguard.Facts) { f.Role = "slave" }), want: restartguard.NotMaster,
			until: time.Second,
		},
		"promoted": {
			facts: facts(now, 0, func(f *restartguard.Facts) { f.ReplID2 = idC }), want: restartguard.Young,
			until: ttl,
		},
		"promoted, and watched since": {facts: old(func(f *restartguard.Facts) { f.ReplID2 = idC })},
		"promoted under known ones": {
			facts: old(func(f *restartguard.Facts) { f.ReplID2 = idC }),
			known: known(restartguard.Known{RunID: idA, ReplID: idC}), want: restartguard.Promoted, until: ttl,
		},
		"promoted a while ago": {
			facts: old(func(f *restartguard.Facts) { f.ReplID2 = idC }), want: restartguard.Promoted,
			until: ttl - 10*time.Second,
			known: known(restartguard.Known{RunID: idA, ReplID: idB, ReplSince: now.Add(-10 * time.Second)}),
		},
		"promoted long ago": {
			facts: old(func(f *restartguard.Facts) { f.ReplID2 = idC }),
			known: known(restartguard.Known{RunID: idA, ReplID: idB, ReplSince: now.Add(-ttl)}),
		},
		"clock ahead": {
			facts: old(func(f *restartguard.Facts) { f.Clock = now.Add(ttl/4 + 1) }), want: restartguard.Skewed,
			until: time.Second,
		},
		"clock behind": {
			facts: old(func(f *restartguard.Facts) { f.Clock = now.Add(-ttl/4 - 1) }), want: restartguard.Skewed,
			until: time.Second,
		},
		"clock near enough": {facts: old(func(f *restartguard.Facts) { f.Clock = now.Add(ttl / 4) })},
		"clock not certain": {
			facts: old().Timed(now, now.Add(-ttl), now.Add(ttl)), want: restartguard.Skewed,
			until: time.Second,
		},
		"evicts": {
			facts: old(func(f *restartguard.Facts) { f.MaxMemory, f.Policy = 1, "volatile-ttl" }),
			want:  restartguard.Evicting, until: time.Second,
		},
		"evicts nothing":    {facts: old(func(f *restartguard.Facts) { f.MaxMemory = 1 })},
		"no limit to evict": {facts: old(func(f *restartguard.Facts) { f.Policy = "allkeys-lru" })},
		"same as another":   {facts: old(), others: []string{"", idC, idA}, want: restartguard.Duplicate, until: time.Second},
		"no run_id":         {others: []string{""}, want: restartguard.NoRunID, until: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, refusal := restartguard.Vet(tt.facts, limits, tt.known, tt.others, now)
			if tt.want == "" {
				if refusal != nil {
					t.Fatal(refusal)
				}
				return
			}
			if refusal == nil {
				t.Fatalf("accepted, want a refusal because %s", tt.want)
			}
			refusedFor(t, refusal, tt.want)
			if got := refusal.Until.Sub(now); got != tt.until {
				t.Errorf("looked at again after %v, want %v", got, tt.until)
			}
		})
	}
}

// Two servers behind one address answer in turn: neither may ever vote, because each lacks the locks of the other.
func TestVetRefusesServersThatTakeTurns(t *testing.T) {
	t.Parallel()
	now, known := time.Now(), restartguard.Known{}
	for i := range 10 {
		id := []string{idA, idC}[i%2]
		var refusal *restartguard.RefusedError
		known, refusal = restartguard.Vet(facts(now, time.Hour, func(f *restartguard.Facts) { f.RunID = id }), limits,
			known, nil,
			now)
		switch {
		case i == 0 && refusal != nil:
			t.Fatal(refusal)
		case i > 0 && refusal == nil:
			t.Fatalf("server %d of those that take turns is accepted", i)
		case i > 0:
			refusedFor(t, refusal, restartguard.Replaced)
		}
		now = now.Add(ttl - 1)
	}
}

// A quarantine that is over stays over, and a refusal is the same however often it is asked for.
func TestVetKeepsItsWord(t *testing.T) {
	t.Parallel()
	start, known := time.Now(), restartguard.Known{}
	for at := time.Duration(0); at < 2*ttl; at += 700 * time.Millisecond {
		now := start.Add(at)
		var refusal *restartguard.RefusedError
		known, refusal = restartguard.Vet(facts(now, 0), limits, known, nil, now)
		if accepted := refusal == nil; accepted != (at >= ttl) {
			t.Fatalf("after %v: %v", at, refusal)
		}
		if refusal != nil && !refusal.Until.Equal(start.Add(ttl)) {
			t.Fatalf("after %v: until %v, want %v", at, refusal.Until.Sub(start), ttl)
		}
	}
}

func TestARefusalSaysWhatWasMeasured(t *testing.T) {
	t.Parallel()
	now := time.Now()
	limits := restartguard.Limits{MaxTTL: ttl, MaxSkew: time.Second}
	vet := func(k restartguard.Known, mod func(*restartguard.Facts)) *restartguard.RefusedError {
		_, refusal := restartguard.Vet(facts(now, ttl, mod), limits, k, nil, now)
		return refusal
	}
	slow := func(ahead time.Duration) func(*restartguard.Facts) {
		return func(f *restartguard.Facts) {
			f.RoundTrip = 2_002_600 * time.Nanosecond
			f.Clock = f.Asked.Add(ahead)
		}
	}
	most := time.Second - 1_001_300*time.Nanosecond // with half of the round trip
	if refusal := vet(restartguard.Known{}, slow(most)); refusal != nil {
		t.Error(refusal)
	}
	skewed := refusedFor(t, vet(restartguard.Known{}, slow(most+1)), restartguard.Skewed)
	if want := "it is 999ms ahead, give or take 1.001ms, and 1s is allowed"; skewed.Cause != want {
		t.Errorf("%q, want %q", skewed.Cause, want)
	}
	known := restartguard.Known{RunID: idA, Seen: now, Born: now.Add(-ttl), ReplID: idB, ReplSince: now.Add(-1_300 * time.Microsecond)}
	promoted := refusedFor(t, vet(known, func(f *restartguard.Facts) { f.ReplID2 = idC }), restartguard.Promoted)
	if want := "is known for 1ms of " + ttl.String(); !strings.HasSuffix(promoted.Cause, want) {
		t.Errorf("%q, want it to end with %q", promoted.Cause, want)
	}
	if causes := promoted.Unwrap(); len(causes) != 0 {
		t.Errorf("a refusal without an error has %v", causes)
	}
}
