package standby

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAReleaseWakesForTheFreePlaces(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		places, waiting, coming int
		handedOff               bool
		want                    int
	}{
		"none is on standby: one takes the key, one waits":       {places: 1, want: 2},
		"the one that waits takes the key, so one place is free": {places: 1, waiting: 1, want: 1},
		"one takes the key, another is on its way":               {places: 1, waiting: 1, coming: 1, want: 0},
		"the one that is expected may never come":                {places: 1, coming: 2, want: 1},
		"none of those that are expected may come":               {places: 4, coming: 9, want: 1},
		"none may be on standby, so one takes the key":           {want: 1},
		"none may be on standby, and one is on its way":          {coming: 1, want: 1},
		"handed off: the place is free again":                    {places: 1, waiting: 1, handedOff: true, want: 1},
		"handed off: the new holder has left already":            {places: 1, handedOff: true, want: 1},
		"handed off, and all places are taken":                   {places: 2, waiting: 3, handedOff: true, want: 0},
		"handed off, and the place is reserved":                  {places: 1, waiting: 1, coming: 1, handedOff: true, want: 0},
		"handed off, and none may be on standby":                 {waiting: 1, handedOff: true, want: 0},
		"four places, one is taken and one reserved":             {places: 4, waiting: 1, coming: 1, want: 3},
		"four places, one is taken and one reserved, handed off": {places: 4, waiting: 1, coming: 1, handedOff: true, want: 3},
		"more wait than there are places":                        {places: 1, waiting: 4, want: 0},
	} {
		if got := wakes(tt.places, tt.waiting, tt.coming, tt.handedOff); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestAFreeKeyHasATaskWoken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(0, 20).Draw(t, "places")
		waiting := rapid.IntRange(0, 20).Draw(t, "waiting")
		coming := rapid.IntRange(0, 20).Draw(t, "coming")
		handedOff := rapid.Bool().Draw(t, "handed off")
		n := wakes(places, waiting, coming, handedOff)
		switch {
		case n < 0:
			t.Fatalf("%d tasks", n)
		case n > places+1:
			t.Fatalf("%d tasks for %d places and the key", n, places)
		case !handedOff && waiting == 0 && n == 0:
			t.Fatal("the key is free, none waits, and none is woken")
		case handedOff && n > places:
			t.Fatalf("%d tasks for %d places", n, places)
		}
		// The tasks that are here or expected, the new holder apart, never exceeds the places by the number that this
		// release wakes.
		here := waiting - 1 + n + coming
		if waiting == 0 && !handedOff {
			here = n - 1 + coming // one of those that were woken takes the key
		}
		if n > 1 && here > places {
			t.Fatalf("%d tasks will be on standby in %d places", here, places)
		}
	})
}

func TestTheMeanFollowsWhatIsMeasured(t *testing.T) {
	t.Parallel()
	var m time.Duration
	m = Average(m, 0)
	if m != 0 {
		t.Errorf("nothing was measured, and the mean is %v", m)
	}
	m = Average(m, -time.Second)
	if m != 0 {
		t.Errorf("a negative time counts: %v", m)
	}
	m = Average(m, 80*time.Millisecond)
	if m != 80*time.Millisecond {
		t.Errorf("the first value gives %v", m)
	}
	m = Average(m, 160*time.Millisecond)
	if m != 90*time.Millisecond {
		t.Errorf("another one counts for an eighth: %v, want 90ms", m)
	}
	for range 100 {
		m = Average(m, time.Millisecond)
	}
	if got := m; got < time.Millisecond/2 || got > 2*time.Millisecond {
		t.Errorf("after a hundred times 1ms it is %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		var m time.Duration
		least, most := time.Duration(1<<62), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			d := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "d"))
			least, most = min(least, d), max(most, d)
			m = Average(m, d)
			if m < least || m > most {
				t.Fatalf("%v is the mean of values from %v to %v", m, least, most)
			}
		}
	})
}
