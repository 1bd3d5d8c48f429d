package middleware

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAReleaseWakesAsManyAsThereArePlaces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		places, waiting, coming int
		handedOn                bool
		want                    int
	}{
		"nobody is on deck: one takes the key, one waits":       {places: 1, want: 2},
		"who waits takes the key, so one place is free":         {places: 1, waiting: 1, want: 1},
		"one takes the key, another is on its way":              {places: 1, waiting: 1, coming: 1, want: 0},
		"a promise may have been broken":                        {places: 1, coming: 2, want: 1},
		"many promises may have been broken":                    {places: 4, coming: 9, want: 1},
		"nobody may be on deck, so one takes the key":           {want: 1},
		"nobody may be on deck, and one is on its way":          {coming: 1, want: 1},
		"handed on: the place is free again":                    {places: 1, waiting: 1, handedOn: true, want: 1},
		"handed on: the new holder has left already":            {places: 1, handedOn: true, want: 1},
		"handed on, and all places are taken":                   {places: 2, waiting: 3, handedOn: true, want: 0},
		"handed on, and the place is promised":                  {places: 1, waiting: 1, coming: 1, handedOn: true, want: 0},
		"handed on, and nobody may be on deck":                  {waiting: 1, handedOn: true, want: 0},
		"four places, one is taken and one promised":            {places: 4, waiting: 1, coming: 1, want: 3},
		"four places, one is taken and one promised, handed on": {places: 4, waiting: 1, coming: 1, handedOn: true, want: 3},
		"more wait than there are places":                       {places: 1, waiting: 4, want: 0},
	} {
		if got := toWake(tt.places, tt.waiting, tt.coming, tt.handedOn); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestAKeyThatNobodyComesForHasATaskWoken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(0, 20).Draw(t, "places")
		waiting := rapid.IntRange(0, 20).Draw(t, "waiting")
		coming := rapid.IntRange(0, 20).Draw(t, "coming")
		handedOn := rapid.Bool().Draw(t, "handed on")
		n := toWake(places, waiting, coming, handedOn)
		switch {
		case n < 0:
			t.Fatalf("%d tasks", n)
		case n > places+1:
			t.Fatalf("%d tasks for %d places and the key", n, places)
		case !handedOn && waiting == 0 && n == 0:
			t.Fatal("the key is free, nobody waits, and nobody is woken")
		case handedOn && n > places:
			t.Fatalf("%d tasks for %d places", n, places)
		}
		// Who is here or expected, the new holder apart, never exceeds the places by what this release has woken.
		here := waiting - 1 + n + coming
		if waiting == 0 && !handedOn {
			here = n - 1 + coming // one of those who were woken takes the key
		}
		if n > 1 && here > places {
			t.Fatalf("%d tasks will be on deck in %d places", here, places)
		}
	})
}

func TestTheMeanFollowsWhatIsMeasured(t *testing.T) {
	t.Parallel()
	var m mean
	m.add(0)
	if m != 0 {
		t.Errorf("nothing was measured, and the mean is %v", time.Duration(m))
	}
	m.add(-time.Second)
	if m != 0 {
		t.Errorf("a negative time counts: %v", time.Duration(m))
	}
	m.add(80 * time.Millisecond)
	if time.Duration(m) != 80*time.Millisecond {
		t.Errorf("the first value gives %v", time.Duration(m))
	}
	m.add(160 * time.Millisecond)
	if time.Duration(m) != 90*time.Millisecond {
		t.Errorf("another one counts for an eighth: %v, want 90ms", time.Duration(m))
	}
	for range 100 {
		m.add(time.Millisecond)
	}
	if got := time.Duration(m); got < time.Millisecond/2 || got > 2*time.Millisecond {
		t.Errorf("after a hundred times 1ms it is %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		var m mean
		least, most := time.Duration(1<<62), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			d := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "d"))
			least, most = min(least, d), max(most, d)
			m.add(d)
			if time.Duration(m) < least || time.Duration(m) > most {
				t.Fatalf("%v is the mean of values from %v to %v", time.Duration(m), least, most)
			}
		}
	})
}
