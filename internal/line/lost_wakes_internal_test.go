package line

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

var someTasks = []Task{{"q", "a"}, {"q", "b"}, {"q", "c"}}

// A wake behind which others wait is checked after half a second; one of a waiter whose slot moves, after 5 ms, and ever later.
func TestAWakeIsCheckedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := newVirtual(t, Options{})
		c := call{target: wakeTarget{key: "k"}, late: someTasks[2:]}
		has := func(what string, want bool) *lastWake {
			t.Helper()
			e.mu.Lock()
			defer e.mu.Unlock()
			f := e.lastWakes["k"]
			if (f != nil) != want {
				t.Fatalf("%s is checked later: %v", what, !want)
			}
			return f
		}
		for _, w := range []Woken{{}, {Left: 3}, {Tasks: someTasks[:1]}} {
			if !e.followUp(c, w) {
				t.Error("the Engine is closed")
			}
			has("a wake of nobody, or of the last one,", false)
		}
		e.followUp(c, Woken{Tasks: someTasks[:2], Left: 1})
		f := has("a wake before others", true)
		if f.wait != followUpFirst || f.again || !slices.Equal(f.tasks, []Task{someTasks[2], someTasks[0], someTasks[1]}) ||
			f.target != c.target || f.changes != 1 || !f.owed.Equal(time.Now().Add(owedAfter)) {
			t.Errorf("it is %+v", f)
		}
		e.followUp(c, Woken{Left: 1})
		if f = has("the wake before", true); f.changes != 1 {
			t.Error("a wake of nobody takes the place of one before it")
		}
		e.followUp(c, Woken{Tasks: someTasks[:1], Left: 1})
		if f = has("the next wake", true); f.changes != 2 || len(f.tasks) != 2 {
			t.Errorf("it is %+v", f)
		}
		for i, want := range []time.Duration{movingFirst, movingFirst * 5 / 4, movingFirst * 5 / 4 * 5 / 4} {
			e.followUp(c, Woken{Pending: true, Left: 1})
			if f = has("a wake of a slot that moves", true); f.wait != want || !f.again {
				t.Errorf("attempt %d comes after %v, want %v", i+1, f.wait, want)
			}
		}
		f.wait = followUpMost - 1
		e.followUp(c, Woken{Pending: true})
		if f = has("a wake of a slot that moves", true); f.wait != followUpMost {
			t.Errorf("the longest time is %v, want %v", f.wait, followUpMost)
		}
		e.followUp(c, Woken{})
		has("a wake after which nobody is left", false)
	})
}

// A woken task has come if it runs or waits again. It is late while it is pending.
func TestATaskHasComeIfItRunsOrWaitsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		late, other := Task{"q", "late"}, Task{"q", "other"}
		client.HSet(t.Context(), late.Hash(), "state", "pending")
		for name, tc := range map[string]struct {
			state        string
			waits        bool
			came, isLate bool
		}{
			"it runs": {state: "active", came: true}, "it waits again": {state: "retry", waits: true, came: true},
			"it has failed": {state: "retry"}, "it is pending": {state: "pending", isLate: true}, "it is archived": {state: "archived"}, "it is gone": {},
		} {
			client.Del(t.Context(), other.Hash(), Names{}.Waiters("k"))
			if tc.state != "" {
				client.HSet(t.Context(), other.Hash(), "state", tc.state)
			}
			if tc.waits {
				client.ZAdd(t.Context(), Names{}.Waiters("k"), redis.Z{Member: other.Entry(), Score: 1})
			}
			came, all, err := e.haveCome(t.Context(), "k", []Task{late, other})
			want := []Task{late}
			if tc.isLate {
				want = append(want, other)
			}
			if came != tc.came || err != nil || !came && !slices.Equal(all, want) || came && all != nil {
				t.Errorf("%s: %v, late are %v, %v", name, came, all, err)
			}
		}
		if held, err := e.isHeld(t.Context(), "k"); held || err != nil {
			t.Errorf("a key whose lock is not known is held: %v, %v", held, err)
		}
		e.LocksAre(func(key string) (lock, notify string) { return "lock:" + key, "notify:" + key })
		for _, want := range []bool{false, true} {
			if held, err := e.isHeld(t.Context(), "k"); held != want || err != nil {
				t.Errorf("the key is held: %v, %v", held, err)
			}
			client.Set(t.Context(), "lock:k", "me", 0)
		}
	})
}

// Late tasks are stuck if each is in a queue that is paused or has no server; a queue that starves will be served.
func TestLateTasksAreStuckWithoutAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		client.Set(t.Context(), asynqwire.Paused("paused"), 1, 0)
		e.unserved.asked, e.unserved.queues, e.unserved.starved = time.Now(), []string{"unserved", "starves"}, 1
		for queues, want := range map[string]bool{"": true, "unserved": true, "paused": true, "starves": false, "busy": false} {
			var late []Task
			if queues != "" {
				late = []Task{{"unserved", "a"}, {queues, "b"}}
			}
			if stuck, err := e.areStuck(t.Context(), late); stuck != want || err != nil {
				t.Errorf("tasks of %q are stuck: %v, %v", queues, stuck, err)
			}
		}
		if got := e.notFetched(); !slices.Equal(got, []string{"unserved", "starves"}) {
			t.Errorf("no server fetches from %v", got)
		}
		time.Sleep(unservedStale)
		if queues, starved := e.lastUnserved(); len(queues) != 2 || starved != 1 {
			t.Errorf("after %v these are without a server: %v, %d starve", unservedStale, queues, starved)
		}
		time.Sleep(time.Nanosecond)
		if queues, starved := e.lastUnserved(); len(queues) != 0 || starved != 0 {
			t.Errorf("an old list counts: %v, %d starve", queues, starved)
		}
	})
}

// Until it has come, a woken task is looked for by this process, and noted for the others in case this one ends.
func TestAWokenTaskIsLookedForUntilItHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		e.LocksAre(func(key string) (lock, notify string) { return "lock:" + key, "notify:" + key })
		client.Set(t.Context(), "lock:k", "me", 0)
		client.HSet(t.Context(), someTasks[0].Hash(), "state", "pending")
		client.ZAdd(t.Context(), Names{}.Waiters("k"), redis.Z{Member: someTasks[1].Entry(), Score: 1})
		e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Tasks: someTasks[:1], Left: 1})
		looked := func(after time.Duration) (again bool, owed time.Duration) {
			time.Sleep(after)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			at := int64(client.ZScore(t.Context(), e.names.owed("k"), Names{}.Waiters("k")).Val())
			return e.lastWakes["k"] != nil, time.UnixMilli(at).Sub(time.Now().Truncate(time.Millisecond))
		}
		if again, owed := looked(followUpFirst); !again || owed != 2*followUpFirst+owedAfter {
			t.Errorf("a late task is looked for again: %v, and by others in %v", again, owed)
		}
		if again, owed := looked(31 * time.Second); !again || owed != followUpMost+owedAfter {
			t.Errorf("a task that is late for half a minute is looked for again: %v, and by others in %v", again, owed)
		}
		client.HSet(t.Context(), someTasks[0].Hash(), "state", "active")
		if again, owed := looked(followUpMost); again || owed > 0 {
			t.Errorf("a task that has come is looked for again: %v, and by others in %v", again, owed)
		}
	})
}

// A woken task that is gone has run if another one holds the key by now, which makes the next wake. Otherwise its wake is lost.
func TestAWokenTaskThatIsGoneIsReplacedOnceTheKeyIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var repaired []Task
		e, client := newVirtual(t, Options{Repaired: func(key string, t Task, lost bool) {
			if key == "k" && lost {
				repaired = append(repaired, t)
			}
		}})
		e.LocksAre(func(key string) (lock, notify string) { return "lock:" + key, "notify:" + key })
		waiting(t, e, client, "a", "k")
		client.Set(t.Context(), "lock:k", "me", 0)
		e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Tasks: []Task{{"q", "gone"}}, Left: 1})
		for i, want := range []string{"retry", "pending"} {
			time.Sleep(followUpFirst << i)
			synctest.Wait()
			if state := client.HGet(t.Context(), someTasks[0].Hash(), asynqwire.StateField).Val(); state != want || len(repaired) != i {
				t.Errorf("look %d: the next task is %s, and told of are %v", i+1, state, repaired)
			}
			client.Del(t.Context(), "lock:k")
		}
	})
}

// A waiter that could not be woken keeps its place, and counts as parked.
func TestAWaiterThatCouldNotBeWokenIsPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		if err := e.putBack(t.Context(), Names{}.Waiters("k"), someTasks[0].Entry(), 7); err != nil {
			t.Fatal(err)
		}
		place := client.ZScore(t.Context(), Names{}.Waiters("k"), someTasks[0].Entry()).Val()
		if parked := client.ZScore(t.Context(), e.names.Index("q"), someTasks[0].Entry()).Err() == nil; place != 7 || !parked {
			t.Errorf("its place is %v, and it counts as parked: %v", place, parked)
		}
	})
}

// One whose slot moves is repeated soon.
func TestAWakeThatWasHeldUpByAMoveIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		waiting(t, e, client, "a", "k")
		e.followUp(call{target: wakeTarget{key: "k"}}, Woken{Pending: true, Left: 1})
		time.Sleep(movingFirst)
		synctest.Wait()
		if state := client.HGet(t.Context(), someTasks[0].Hash(), asynqwire.StateField).Val(); state != "pending" {
			t.Errorf("the waiter is %s", state)
		}
	})
}

// The process that pays an owed wake may end, too: the next one looks as soon as after any other wake.
func TestAnOwedWakeThatIsPaidIsLookedAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, client := newVirtual(t, Options{})
		waiting(t, e, client, "a", "k")
		waiting(t, e, client, "b", "k")
		client.ZAdd(t.Context(), e.names.owed("k"), redis.Z{Member: Names{}.Waiters("k"), Score: 1})
		if err := e.payOwed(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := time.UnixMilli(int64(client.ZScore(t.Context(), e.names.owed("k"), Names{}.Waiters("k")).Val()))
		if state := client.HGet(t.Context(), someTasks[0].Hash(), asynqwire.StateField).Val(); state != "pending" || !at.Equal(time.Now().Add(owedAfter).Truncate(time.Millisecond)) {
			t.Errorf("the first waiter is %s, and looked after in %v", state, time.Until(at))
		}
	})
}
