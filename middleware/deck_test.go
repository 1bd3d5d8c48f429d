package middleware

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
)

func numbered(n int) parking.Task {
	return parking.Task{Queue: "default", ID: fmt.Sprint(n)}
}

// wake has the deck of a key wake as many as it wants after a release, and tells it who was woken.
func (k *decks) wakeAll(key string, left int, tasks ...parking.Task) {
	n := k.release(key, 5*time.Millisecond, false, true)
	k.woke(key, n, parking.Woken{Tasks: tasks, Left: left}, true)
}

// counters returns what is left of a deck's bookkeeping.
func (k *decks) counters() (waiting, asking, coming, promises, early int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.keys {
		k.expire(d, time.Now())
		waiting += d.waiting
		asking += d.asking
		coming += len(d.coming)
	}
	return waiting, asking + k.asking, coming, len(k.coming), len(k.early)
}

func (k *decks) wantZero(t *testing.T) {
	t.Helper()
	if waiting, asking, coming, promises, early := k.counters(); waiting != 0 || asking != 0 || coming != 0 || promises != 0 || early != 0 {
		t.Errorf("%d wait, %d are being woken, %d and %d are promised a place, %d came early; want none", waiting, asking, coming, promises, early)
	}
}

func TestAPromisedTaskGetsItsPlaceAndIsMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		k.park("a", 3, 1)
		k.wakeAll("a", 1, numbered(1), numbered(2))
		if got := k.look("a"); got.onDeck != 2 || got.hold != 5*time.Millisecond || got.pickup != 0 {
			t.Errorf("it knows %+v", got)
		}
		if k.enter("a", 1, false) {
			t.Error("a newcomer got a place that is promised")
		}
		time.Sleep(7 * time.Millisecond)
		key, promised := k.arrive(numbered(1))
		if key != "a" || !promised {
			t.Errorf("the task was promised %q, %v", key, promised)
		}
		if _, again := k.arrive(numbered(1)); again {
			t.Error("a promise was kept twice")
		}
		if !k.enter("a", 1, true) {
			t.Error("a promised task got no place")
		}
		if got := k.look("a"); got.onDeck != 2 || got.pickup != 7*time.Millisecond {
			t.Errorf("then it knows %+v", got)
		}
		if k.leave("a", true) {
			t.Error("who has the key has nothing to pass on")
		}
		_, _ = k.arrive(numbered(2))
		k.wantZero(t)
	})
}

func TestABrokenPromiseKeepsItsPlaceForAShortTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct{ pickup, kept time.Duration }{
			"no pickup is known":     {0, 2 * time.Second},
			"a quick server":         {time.Millisecond, 20 * time.Millisecond},
			"an ordinary one":        {10 * time.Millisecond, 80 * time.Millisecond},
			"a server that is dozy ": {time.Second, 2 * time.Second},
		} {
			var k decks
			k.pickup = mean(tt.pickup)
			k.park("a", 2, 1)
			k.wakeAll("a", 0, numbered(1)) // and another server fetches it
			time.Sleep(tt.kept - 1)
			if got := k.look("a").onDeck; got != 1 {
				t.Errorf("%s: %d are expected just before the end, want 1", name, got)
			}
			time.Sleep(time.Nanosecond)
			if got := k.look("a").onDeck; got != 0 {
				t.Errorf("%s: %d are expected after %v, want none", name, got, tt.kept)
			}
			if _, promised := k.arrive(numbered(1)); promised {
				t.Errorf("%s: a promise that has expired was kept", name)
			}
			k.wantZero(t)
		}
	})
}

func TestATaskThatArrivesBeforeItsWakeWasAnsweredIsNotExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		k.park("a", 2, 1)
		n := k.release("a", time.Millisecond, false, true)
		if _, promised := k.arrive(numbered(1)); promised {
			t.Error("nobody knew of it yet")
		}
		k.woke("a", n, parking.Woken{Tasks: []parking.Task{numbered(1), numbered(2)}}, true)
		if got := k.look("a").onDeck; got != 1 {
			t.Errorf("%d are expected, want the second alone", got)
		}
		_, _ = k.arrive(numbered(2))
		k.wantZero(t)
	})
}

// A server under load always has a wake under way. What it notes of arrivals meanwhile must not grow with them, and must not be taken
// for an answer to a later wake.
func TestArrivalsAreNotRememberedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		n, before := k.release("slow", time.Millisecond, false, true), ""
		for i := range 100_000 {
			key := []string{"slow", "other"}[i%2]
			next := k.release(key, time.Millisecond, false, true) // begun before the one before it has its answer
			_, _ = k.arrive(numbered(i))
			if before == "" {
				before = "slow"
			}
			k.woke(before, n, parking.Woken{}, true)
			n, before = next, key
			time.Sleep(100 * time.Microsecond)
		}
		if _, _, _, _, early := k.counters(); early > 1000 {
			t.Errorf("%d tasks are remembered that came while others were being woken", early)
		}
		k.woke(before, n, parking.Woken{}, true)
		k.wantZero(t)
	})
}

func TestAnArrivalIsNoAnswerToALaterWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		k.park("slow", 2, 1)
		other := k.release("slow", time.Millisecond, false, true) // its answer takes long
		if _, promised := k.arrive(numbered(1)); promised {
			t.Error("nobody has promised it anything")
		}
		k.park("a", 1, 1) // it parks, and is woken
		k.wakeAll("a", 0, numbered(1))
		if key, promised := k.arrive(numbered(1)); key != "a" || !promised {
			t.Errorf("a task that was woken after it had parked was promised %q, %v", key, promised)
		}
		k.woke("slow", other, parking.Woken{}, true)
		k.wantZero(t)
	})
}

func TestAWakeThatWasAbsorbedIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		k.park("a", 5, 1)
		for n := range 3 {
			if got := k.enter("a", 2, false); got != (n < 2) {
				t.Errorf("place %d of two: %v", n+1, got)
			}
		}
		k.park("a", 5, 0)
		if n := k.release("a", time.Millisecond, false, true); n != 0 {
			t.Errorf("%d are woken although two wait", n)
		}
		if k.leave("a", false) {
			t.Error("passed on although another one waits")
		}
		if !k.leave("a", false) {
			t.Error("the last one gave up, and nobody was woken")
		}
		k.woke("a", 1, parking.Woken{}, true)
		k.enter("a", 1, false)
		if k.leave("a", false) {
			t.Error("passed on twice")
		}
		k.enter("a", 1, false)
		k.release("a", time.Millisecond, false, true)
		k.enter("a", 2, false)
		k.leave("a", true)
		if k.leave("a", false) {
			t.Error("passed on although one has taken the key, who will wake another")
		}
		k.woke("a", k.asking, parking.Woken{}, true)
		k.wantZero(t)
	})
}

func TestAWakeThatFailedKeepsWhatWasKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		k.park("a", 7, 1)
		n := k.release("a", time.Millisecond, false, true)
		k.woke("a", n, parking.Woken{}, false)
		if n := k.release("a", time.Millisecond, false, false); n == 0 {
			t.Error("it has forgotten that seven are parked")
		} else {
			k.woke("a", n, parking.Woken{Left: 0}, true)
		}
		if n := k.release("a", time.Millisecond, false, false); n != 0 {
			t.Errorf("nobody is parked and nobody has asked, and %d are woken", n)
		}
		k.wantZero(t)
	})
}

func TestAKeyThatNobodyAsksForIsNotRemembered(t *testing.T) {
	t.Parallel()
	var k decks
	if n := k.release("a", time.Millisecond, false, false); n != 0 || len(k.keys) != 0 {
		t.Errorf("%d are woken, %d keys are remembered", n, len(k.keys))
	}
	if got := k.look("a"); got != (state{}) || len(k.keys) != 0 {
		t.Errorf("a look at it tells %+v, %d keys are remembered", got, len(k.keys))
	}
}

func TestIdleKeysAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		for i := range 100_000 {
			k.park(fmt.Sprint(i), 1, 1)
			k.wakeAll(fmt.Sprint(i), 0, numbered(i)) // which never comes
		}
		k.enter("kept", 1, false)
		time.Sleep(idleDeck + comingMost)
		for i := range 150_000 {
			k.park(fmt.Sprint("later", i), 1, 1)
			if i%1000 == 0 {
				time.Sleep(5 * time.Second)
			}
		}
		if n := len(k.keys); n > 50_000 {
			t.Errorf("%d keys are remembered", n)
		}
		if n := len(k.coming); n != 0 {
			t.Errorf("%d promises are remembered that nobody has come for", n)
		}
		if k.keys["kept"] == nil {
			t.Error("a key was forgotten for which somebody waits")
		}
		k.leave("kept", false)
	})
}

func TestTheCountsEndAtZeroWhateverHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k decks
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 2)) //nolint:gosec // a test that can be repeated
				for range 2000 {
					key := fmt.Sprint(random.IntN(3))
					_, promised := k.arrive(numbered(random.IntN(50)))
					_ = k.look(key)
					if k.enter(key, random.IntN(4), promised) {
						if random.IntN(4) == 0 {
							time.Sleep(time.Millisecond)
						}
						if k.leave(key, random.IntN(2) == 0) {
							k.woke(key, 1, parking.Woken{}, random.IntN(3) > 0)
						}
					}
					k.park(key, random.IntN(5), random.IntN(4))
					if n := k.release(key, time.Millisecond, random.IntN(2) == 0, random.IntN(2) == 0); n > 0 || random.IntN(9) == 0 {
						var w parking.Woken
						for range random.IntN(n + 1) {
							w.Tasks = append(w.Tasks, numbered(random.IntN(50)))
						}
						time.Sleep(time.Microsecond)
						k.woke(key, n, w, random.IntN(5) > 0)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(comingMost)
		k.wantZero(t)
	})
}
