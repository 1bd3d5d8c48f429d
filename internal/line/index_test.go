package line_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// parkTotal parks a task with a total bound.
func (r *rig) parkTotal(t line.Task, key string, total int) line.Parked {
	r.Helper()
	return r.parkWith(t, key, line.ParkOptions{MaxTotal: total})
}

// indexed fails the test when the index is not of these tasks.
func (r *rig) indexed(when string, want ...line.Task) {
	r.Helper()
	entries := []string{}
	for _, t := range want {
		entries = append(entries, entry(t))
	}
	slices.Sort(entries)
	if got := slices.Sorted(slices.Values(r.parked())); !slices.Equal(got, entries) {
		r.Errorf("%s: the index has %q, want %q", when, got, entries)
	}
}

// hasPlace reports whether a wake finds a parked task.
func (r *rig) hasPlace(t line.Task) bool { return len(r.wait(t).Keys) > 0 }

func TestTheTotalBoundIsForAllKeysTogether(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b, c := r.Delayed("a"), r.Delayed("b"), r.Delayed("c")
		for i, task := range []line.Task{a, b, c} {
			r.parkTotal(task, task.ID, 2)
			if r.hasPlace(task) != (i < 2) {
				t.Errorf("%s has a place: %v", task, i >= 2)
			}
		}
		if got := r.Waiting("c"); len(got) != 0 {
			t.Errorf("%v waits at the bound", got)
		}
		r.indexed("at the bound", a, b)
		// Who waits goes on waiting, also for another key.
		if place := r.parkTotal(a, "a", 2); !r.hasPlace(a) || place.Count != 2 {
			t.Errorf("again: %+v", place)
		}
		if place := r.parkTotal(b, "another", 2); !r.hasPlace(b) {
			t.Errorf("for another key: %+v", place)
		}
		// A wake makes room.
		r.Wake("a")
		if place := r.parkTotal(c, "c", 2); !r.hasPlace(c) || place.Count != 2 {
			t.Errorf("after a wake: %+v", place)
		}
		r.indexed("in the end", b, c)
	})
}

func TestTasksThatAreGoneDoNotCountForTheTotal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		alive := r.Delayed("alive")
		r.Park(alive, "k")
		for i := range 6 {
			task := r.Delayed(fmt.Sprint("gone", i))
			r.Park(task, fmt.Sprint("k", i))
			if i%2 == 0 {
				r.Remove(task)
			} else if err := r.Inspect.ArchiveTask(task.Queue, task.ID); err != nil {
				t.Fatal(err)
			}
		}
		r.Park(alive, "k") // as it does each time that its timer ends: those who are gone become the oldest
		task := r.Delayed("new")
		for tries := 1; ; tries++ {
			r.parkTotal(task, "k", 2)
			if r.hasPlace(task) {
				break
			}
			if tries == 3 {
				t.Fatal("it is refused for the third time, though all but one are gone")
			}
		}
		r.indexed("after some looks", alive, task)
		more := r.Delayed("one more")
		if place := r.parkTotal(more, "k", 2); r.hasPlace(more) {
			t.Errorf("%+v: those who are alive count", place)
		}
	})
}

func TestEntriesThatAreNotRefreshedAreForgotten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		old, young, task := r.Delayed("old"), r.Delayed("young"), r.Delayed("new")
		for age, left := range map[time.Duration]line.Task{49 * time.Hour: old, 47 * time.Hour: young} {
			score := float64(time.Now().Add(-age).UnixMicro())
			if err := r.Client.ZAdd(t.Context(), r.index(),
				redis.Z{Score: score, Member: entry(left)}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		r.Park(task, "k")
		r.indexed("two days later", young, task)
		if ttl := r.Client.TTL(t.Context(), r.index()).Val(); ttl < 47*time.Hour || ttl > 49*time.Hour {
			t.Errorf("an index that nobody uses is kept for %v", ttl)
		}
	})
}

func TestTheIndexFollowsTheWaiters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b, c, d := r.Delayed("a"), r.Delayed("b"), r.Delayed("c"), r.Delayed("d")
		for _, task := range []line.Task{a, b, c, d} {
			r.Park(task, "k")
		}
		r.indexed("parked", a, b, c, d)
		first := r.Client.ZScore(t.Context(), r.index(), entry(a)).Val()
		if since := time.Since(time.UnixMicro(int64(first))).Abs(); since > time.Minute {
			t.Errorf("a was parked %v ago", since)
		}
		r.Park(a, "k")
		if again := r.Client.ZScore(t.Context(), r.index(), entry(a)).Val(); again <= first {
			t.Errorf("parked again at %v, after %v", again, first)
		}
		r.Park(b, "another")
		r.indexed("in another line", a, b, c, d)
		r.Wake("k")
		r.indexed("a was woken", b, c, d)
		r.Begin(c)
		if err := r.Engine.ForwardWake(t.Context(), c, true); err != nil { // wakes d
			t.Fatal(err)
		}
		r.indexed("c has left and d was woken", b)
		r.Remove(b)
		r.Wake("another")
		r.indexed("b is gone")
		f, g := r.Delayed("f"), r.Delayed("g")
		r.Park(f, "full")
		full := line.ParkOptions{MaxWaiters: 1}
		if place := r.parkWith(g, "full", full); r.hasPlace(g) {
			t.Errorf("%+v", place)
		}
		r.indexed("g is at a bound", f)
		r.Remove(f)
		if place := r.parkWith(g, "full", full); !r.hasPlace(g) {
			t.Errorf("%+v", place)
		}
		r.indexed("f is gone", g)
	})
}

// An entry that is left over in a line must not take the task's entry for its other line out of the index.
func TestAnEntryThatIsLeftOverIsNotWoken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.Delayed("a"), r.Delayed("b")
		r.Park(a, "one")
		r.Park(b, "two")
		left := redis.Z{Score: 1, Member: entry(a)}
		if err := r.Client.ZAdd(t.Context(), r.registry("two"), left).Err(); err != nil {
			t.Fatal(err)
		}
		if woken := r.Wake("two"); woken.First() != b || woken.Left != 0 {
			t.Errorf("woke %+v, want %s", woken, b)
		}
		r.indexed("after the wake", a)
		if woken := r.Wake("one"); woken.First() != a {
			t.Errorf("woke %+v, want %s", woken, a)
		}
	})
}

func TestEveryQueueOfARedisSharesTheIndex(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		queue, err := line.New(r.Client, line.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = queue.Close() })
		task := r.begun("a")
		if _, err := queue.Park(t.Context(), task, r.key("k"), line.ParkOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.ZScore(t.Context(), "railtoken:parked", entry(task)).Err(); err != nil {
			t.Error(err)
		}
		if _, err := queue.Wake(t.Context(), r.key("k"), line.WakeOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.ZScore(t.Context(), "railtoken:parked", entry(task)).Err(); err == nil {
			t.Error("the woken task is still in the index")
		}
	})
}
