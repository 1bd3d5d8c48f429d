package standby

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/line"
)

func numbered(n int) line.Task {
	return line.Task{Queue: "default", ID: fmt.Sprint(n)}
}

func always() bool { return true }

// release releases a key that was held for 1 ms, while a slot is free for standby.
func (k *Keys) release(key string, handedOff, notify bool) int {
	return k.Released(key, Release{Held: time.Millisecond, HandedOff: handedOff, Notify: notify}, always)
}

// wakeAll releases a key, and notes the tasks that were woken for it.
func (k *Keys) wakeAll(key string, left int, tasks ...line.Task) {
	n := k.Released(key, Release{Held: 5 * time.Millisecond, Notify: true}, always)
	k.Woke(key, n, tasks, left)
}

// counters returns what is left of the bookkeeping.
func (k *Keys) counters() (waiting, waking, reserved, expected, early int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, known := range k.keys {
		k.expire(known, time.Now())
		waiting += known.waiting
		waking += known.waking
		reserved += len(known.reserved)
	}
	return waiting, waking + k.waking, reserved, len(k.arrivals.expected), len(k.arrivals.early)
}

func (k *Keys) wantZero(t *testing.T) {
	t.Helper()
	if waiting, waking, reserved, expected, early := k.counters(); waiting+waking+reserved+expected+early != 0 || waiting < 0 || waking < 0 {
		t.Errorf("%d wait, %d are being woken, %d places are reserved, %d are expected, %d came early; want none",
			waiting, waking, reserved, expected, early)
	}
}

func TestAWokenTaskGetsItsPlaceAndIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		k.Parked("a", 3, 1)
		k.wakeAll("a", 1, numbered(1), numbered(2))
		if got := k.State("a"); got.Standby != 2 || got.Hold != 5*time.Millisecond || got.Pickup != 0 {
			t.Errorf("it knows %+v", got)
		}
		if k.Enter("a", 1, false) {
			t.Error("a newcomer got a reserved place")
		}
		key, spare := k.Arrive(numbered(1), 7*time.Millisecond)
		if key != "a" || !spare {
			t.Errorf("a place is reserved for %q; a slot was free: %t", key, spare)
		}
		if key, _ := k.Arrive(numbered(1), 0); key != "" {
			t.Error("a place was reserved twice")
		}
		if !k.Enter("a", 1, true) {
			t.Error("a task with a reservation got no place")
		}
		if got := k.State("a"); got.Standby != 2 || got.Pickup != 7*time.Millisecond {
			t.Errorf("then it knows %+v", got)
		}
		if k.Leave("a", true) {
			t.Error("a task that has the key wakes none")
		}
		_, _ = k.Arrive(numbered(2), 0)
		k.wantZero(t)
	})
}

func TestAPlaceIsReservedForAShortTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct{ pickup, kept time.Duration }{
			"no pickup is known": {0, 2 * time.Second},
			"a quick server":     {time.Millisecond, 20 * time.Millisecond},
			"an ordinary one":    {10 * time.Millisecond, 80 * time.Millisecond},
			"a slow server":      {time.Second, 2 * time.Second},
		} {
			var k Keys
			k.pickup = tt.pickup
			k.Parked("a", 2, 1)
			k.wakeAll("a", 0, numbered(1)) // and another server fetches it
			time.Sleep(tt.kept - 1)
			if got := k.State("a").Standby; got != 1 {
				t.Errorf("%s: %d are expected just before the end, want 1", name, got)
			}
			time.Sleep(time.Nanosecond)
			if got := k.State("a").Standby; got != 0 {
				t.Errorf("%s: %d are expected after %v, want none", name, got, tt.kept)
			}
			if key, _ := k.Arrive(numbered(1), 0); key != "" {
				t.Errorf("%s: a reservation outlived its time", name)
			}
			k.wantZero(t)
		}
	})
}

func TestATaskThatIsHereAlreadyIsNotExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		k.Parked("a", 2, 1)
		n := k.release("a", false, true)
		if key, _ := k.Arrive(numbered(1), 0); key != "" {
			t.Error("it was not known yet")
		}
		k.Woke("a", n, []line.Task{numbered(1), numbered(2)}, 0)
		if got := k.State("a").Standby; got != 1 {
			t.Errorf("%d are expected, want the second alone", got)
		}
		_, _ = k.Arrive(numbered(2), 0)
		k.wantZero(t)
	})
}

// A server under load always has a wake under way. What it notes of arrivals meanwhile must not grow with them, and
// must not be taken for an answer to a later wake.
func TestArrivalsAreNotRememberedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		n, before := k.release("slow", false, true), ""
		for i := range 100_000 {
			key := []string{"slow", "other"}[i%2]
			next := k.release(key, false, true) // begun before the one before it has its answer
			_, _ = k.Arrive(numbered(i), 0)
			if before == "" {
				before = "slow"
			}
			k.Woke(before, n, nil, 0)
			n, before = next, key
			time.Sleep(100 * time.Microsecond)
		}
		if _, _, _, _, early := k.counters(); early > 1000 {
			t.Errorf("%d tasks are remembered that came while others were being woken", early)
		}
		k.Woke(before, n, nil, 0)
		k.wantZero(t)
	})
}

func TestAnArrivalIsNoAnswerToALaterWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		k.Parked("slow", 2, 1)
		other := k.release("slow", false, true) // its answer takes long
		if key, _ := k.Arrive(numbered(1), 0); key != "" {
			t.Error("nothing is reserved for it")
		}
		k.Parked("a", 1, 1) // it parks, and is woken
		k.wakeAll("a", 0, numbered(1))
		if key, _ := k.Arrive(numbered(1), 0); key != "a" {
			t.Errorf("a task that was woken after it had parked has a place for %q", key)
		}
		k.Woke("slow", other, nil, 0)
		k.wantZero(t)
	})
}

func TestAnAbsorbedWakeIsMadeUpForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		k.Parked("a", 5, 1)
		for n := range 3 {
			if got := k.Enter("a", 2, false); got != (n < 2) {
				t.Errorf("place %d of two: %v", n+1, got)
			}
		}
		k.Parked("a", 5, 0)
		if n := k.release("a", false, true); n != 0 {
			t.Errorf("%d are woken although two wait", n)
		}
		if k.Leave("a", false) {
			t.Error("woken although another one waits")
		}
		if !k.Leave("a", false) {
			t.Error("the last one gave up, and none was woken")
		}
		k.Woke("a", 1, nil, 0)
		k.Enter("a", 1, false)
		if k.Leave("a", false) {
			t.Error("woken twice")
		}
		k.Enter("a", 1, false)
		k.release("a", false, true)
		k.Enter("a", 2, false)
		k.Leave("a", true)
		if k.Leave("a", false) {
			t.Error("woken although one has taken the key, which will wake another")
		}
		k.Woke("a", k.waking, nil, 0)
		k.wantZero(t)
	})
}

func TestAWakeThatFailedKeepsWhatWasKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		k.Parked("a", 7, 1)
		n := k.release("a", false, true)
		k.NotWoken("a", n)
		if n := k.release("a", false, false); n == 0 {
			t.Error("it has forgotten that seven are parked")
		} else {
			k.Woke("a", n, nil, 0)
		}
		if n := k.release("a", false, false); n != 0 {
			t.Errorf("none is parked and none has asked, and %d are woken", n)
		}
		k.wantZero(t)
	})
}

func TestAKeyWithoutWaitersIsNotRemembered(t *testing.T) {
	t.Parallel()
	var k Keys
	if n := k.release("a", false, false); n != 0 || len(k.keys) != 0 {
		t.Errorf("%d are woken, %d keys are remembered", n, len(k.keys))
	}
	if got := k.State("a"); got != (State{}) || len(k.keys) != 0 {
		t.Errorf("a look at it tells %+v, %d keys are remembered", got, len(k.keys))
	}
}

func TestIdleKeysAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		for i := range 100_000 {
			k.Parked(fmt.Sprint(i), 1, 1)
			k.wakeAll(fmt.Sprint(i), 0, numbered(i)) // which never comes
		}
		k.Enter("kept", 1, false)
		time.Sleep(idle + mostReserved)
		for i := range 150_000 {
			k.Parked(fmt.Sprint("later", i), 1, 1)
			if i%1000 == 0 {
				time.Sleep(5 * time.Second)
			}
		}
		if n := len(k.keys); n > 50_000 {
			t.Errorf("%d keys are remembered", n)
		}
		if n := len(k.arrivals.expected); n != 0 {
			t.Errorf("%d tasks are expected that have not come", n)
		}
		if k.keys["kept"] == nil {
			t.Error("a key was forgotten for which a task waits")
		}
		k.Leave("kept", false)
	})
}

func TestTheCountsEndAtZeroWhateverHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k Keys
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 2)) //nolint:gosec // a test that can be repeated
				for range 2000 {
					key := fmt.Sprint(random.IntN(3))
					reserved, _ := k.Arrive(numbered(random.IntN(50)), 0)
					_ = k.State(key)
					if k.Enter(key, random.IntN(4), reserved != "") {
						if random.IntN(4) == 0 {
							time.Sleep(time.Millisecond)
						}
						if k.Leave(key, random.IntN(2) == 0) {
							if random.IntN(3) > 0 {
								k.Woke(key, 1, nil, 0)
							} else {
								k.NotWoken(key, 1)
							}
						}
					}
					k.Parked(key, random.IntN(5), random.IntN(4))
					if n := k.release(key, random.IntN(2) == 0, random.IntN(2) == 0); n > 0 || random.IntN(9) == 0 {
						var woken []line.Task
						for range random.IntN(n + 1) {
							woken = append(woken, numbered(random.IntN(50)))
						}
						time.Sleep(time.Microsecond)
						if random.IntN(5) > 0 {
							k.Woke(key, n, woken, 0)
						} else {
							k.NotWoken(key, n)
						}
					}
				}
			})
		}
		all.Wait()
		time.Sleep(mostReserved)
		k.wantZero(t)
	})
}

func TestAPlannedReleaseCountsAsOneThatWasMade(t *testing.T) {
	t.Parallel()
	var k Keys
	if n, known := k.Plan("a", time.Millisecond, always); n != 1 || known || len(k.keys) > 0 {
		t.Errorf("of an unknown key it wakes %d tasks, known: %t; it knows %d keys", n, known, len(k.keys))
	}
	k.Parked("a", 9, 2)
	n, known := k.Plan("a", time.Millisecond, always)
	if n != 3 || !known {
		t.Errorf("it wakes %d tasks, known: %t; want one for the key and two for the places", n, known)
	}
	if key, _ := k.Arrive(numbered(1), 0); key != "" {
		t.Error("a place is reserved before the answer")
	}
	if awaited := k.Woke("a", n, []line.Task{numbered(1), numbered(2), numbered(3)}, 6); awaited {
		t.Error("somebody waits in a slot")
	}
	if _, _, reserved, expected, early := k.counters(); reserved != 2 || expected != 2 || early != 0 {
		t.Errorf("%d places are reserved, %d tasks expected, %d early; want 2, 2, 0", reserved, expected, early)
	}
	_, _ = k.Arrive(numbered(2), 0)
	if !k.Enter("a", 2, true) {
		t.Error("no place is free")
	}
	if n, known := k.Plan("a", time.Millisecond, always); n != 0 || !known {
		t.Errorf("while a task waits in its slot, a release wakes %d, known: %t", n, known)
	}
	k.NotWoken("a", 0)
	if n := k.release("a", false, true); n != 1 { // one gets the key, one is expected, one place is free
		t.Errorf("then it wakes %d, want 1", n)
	}
	k.NotWoken("a", 1)
	_, _ = k.Arrive(numbered(3), 0)
	if k.Leave("a", true) {
		t.Error("the one that waited has the key, and wakes another")
	}
	k.wantZero(t)
	k.Learn("b", time.Second, 3)
	if got := k.State("b"); got.Hold != time.Second || got.Standby != 0 {
		t.Errorf("of a key that it has learned it knows %+v", got)
	}
	if n := k.release("b", false, false); n != 1 {
		t.Errorf("the release of a key on which tasks are parked wakes %d, want 1", n)
	}
}

// A task of several keys that waits in its slot must not lose one of them to a task that the acknowledgement wakes.
func TestNoneIsWokenWithAReleaseThatATaskWaitsFor(t *testing.T) {
	t.Parallel()
	var k Keys
	k.Parked("a", 9, 2)
	over := k.Want([]string{"a", "b"})
	for _, key := range []string{"a", "b"} {
		if n, known := k.Plan(key, time.Millisecond, always); n != 0 || !known {
			t.Errorf("a release of %s wakes %d tasks, known: %t", key, n, known)
		}
	}
	over()
	n, _ := k.Plan("a", time.Millisecond, always)
	if n != 3 {
		t.Errorf("afterwards it wakes %d, want 3", n)
	}
	k.NotWoken("a", n)
	k.wantZero(t)
}
