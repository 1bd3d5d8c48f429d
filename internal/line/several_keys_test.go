package line_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// wakes wakes for a key until nobody is left, and returns the IDs in order.
func (r *rig) wakes(key string) (ids []string) {
	r.Helper()
	for {
		woken := r.Wake(key)
		if len(woken.Tasks) == 0 {
			return ids
		}
		ids = append(ids, woken.First().ID)
	}
}

func TestTheFirstReleasedKeyWakesTheTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		keys := []string{"k", "m", "n"}
		for _, first := range keys {
			var others []string
			for _, key := range keys {
				r.Park(r.Delayed(first+"-before-"+key), key)
			}
			a := r.Delayed(first + "-a")
			r.parkFor(a, keys...)
			for _, key := range keys {
				r.Park(r.Delayed(first+"-behind-"+key), key)
				if key != first {
					others = append(others, key)
				}
			}
			if got, want := r.wakes(first), []string{first + "-before-" + first, a.ID, first + "-behind-" + first}; !slices.Equal(got, want) {
				t.Errorf("%s woke %v, want %v", first, got, want)
			}
			for _, key := range others {
				if got, want := r.wakes(key), []string{first + "-before-" + key, first + "-behind-" + key}; !slices.Equal(got, want) {
					t.Errorf("%s woke %v, want %v", key, got, want)
				}
			}
		}
		if left := r.parked(); len(left) != 0 {
			t.Errorf("in the index are %v", left)
		}
	})
}

func TestKeysReleasedAtOnceWakeTheTaskOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		keys := []string{"k", "m", "n"}
		for i := range 50 {
			a := r.Delayed(fmt.Sprint("a", i))
			r.parkFor(a, keys...)
			for _, key := range keys {
				r.Park(r.Delayed(fmt.Sprint(key, i)), key)
			}
			var mu sync.Mutex
			var woken []string
			var all sync.WaitGroup
			for _, key := range keys {
				all.Go(func() {
					w, err := r.Engine.Wake(t.Context(), r.key(key), line.WakeOptions{})
					mu.Lock()
					defer mu.Unlock()
					if err != nil || len(w.Tasks) != 1 {
						t.Errorf("%s woke %+v, %v", key, w, err)
						return
					}
					woken = append(woken, w.First().ID)
				})
			}
			all.Wait()
			pending := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val()
			slices.Sort(woken)
			slices.Sort(pending)
			if !slices.Equal(woken, pending) || len(slices.Compact(woken)) != 3 || !slices.Contains(woken, a.ID) {
				t.Fatalf("woken are %v, pending %v", woken, pending)
			}
			for _, key := range keys {
				r.wakes(key)
			}
			for _, id := range append(keys, "a") {
				task := r.task(fmt.Sprint(id, i))
				r.finish(r.Begin(task))
			}
		}
	})
}

// It was woken for a key, found it held again, and waits for that key and others: the holder wakes the next.
func TestATaskThatParksAgainKeepsItsPlaces(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a := r.Delayed("a")
		r.parkFor(a, "k", "m")
		r.Park(r.Delayed("k1"), "k")
		r.Park(r.Delayed("m1"), "m")
		r.Wake("m")
		r.parkFor(a, "k", "m", "n")
		for key, want := range map[string][]string{"k": {"a", "k1"}, "m": {"a", "m1"}, "n": {"a"}} {
			if got := r.Waiting(key); !slices.Equal(got, want) {
				t.Errorf("for %s wait %v, want %v", key, got, want)
			}
		}
		if pending := r.Client.LLen(t.Context(), "asynq:{"+r.name+"}:pending").Val(); pending != 0 {
			t.Errorf("%d others were woken", pending)
		}
		// It is done with m, and its wake for m goes to the next.
		r.Wake("m")
		r.parkFor(a, "k", "n")
		r.Become(r.task("m1"), asynq.TaskStatePending)
		// Now it waits for k alone.
		r.Park(a, "k")
		if got := r.wakes("n"); len(got) != 0 || r.State(a) != asynq.TaskStateRetry {
			t.Errorf("n woke %v, and it is %v", got, r.State(a))
		}
		// Any of other keys wakes it.
		r.parkFor(a, "m", "n")
		if got := r.wakes("n"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("n woke %v", got)
		}
	})
}

func TestAFullKeyIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.Park(r.Delayed("m1"), "m")
		r.parkWith(r.Delayed("a"), "k", line.ParkOptions{MaxWaiters: 1, Also: r.keysOf([]string{"m", "n"})})
		for key, want := range map[string][]string{"k": {"a"}, "m": {"m1"}, "n": {"a"}} {
			if got := r.Waiting(key); !slices.Equal(got, want) {
				t.Errorf("for %s wait %v, want %v", key, got, want)
			}
		}
		if n := len(r.parked()); n != 2 {
			t.Errorf("%d are parked, want 2", n)
		}
	})
}

func TestTheTimerIsThatOfTheBestPlace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 20 {
			r.Park(r.Delayed(fmt.Sprint(i)), "k")
		}
		const look = 30 * time.Second
		for _, c := range []struct {
			id   string
			also []string
			want time.Duration
		}{{"alone", nil, 3 * look}, {"also for m", []string{"m"}, look}} {
			place := r.parkWith(r.Delayed(c.id), "k", line.ParkOptions{RetryAfter: look, Also: r.keysOf(c.also)})
			if place.Timer != c.want || place.Ahead < 20 {
				t.Errorf("%s: %+v, want the timer %v", c.id, place, c.want)
			}
		}
	})
}

func TestOperatorsSeeEveryKeyOfATask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a := r.Delayed("a")
		r.Park(r.Delayed("m1"), "m")
		r.parkFor(a, "k", "m", "n")
		r.Park(r.Delayed("m2"), "m")
		w, err := r.inspector().Find(t.Context(), delayqueue.Task(a))
		if err != nil || w.Key != r.key("k") || w.Position != 1 || !slices.Equal(w.Also, r.keysOf([]string{"m", "n"})) {
			t.Errorf("it waits for %+v, %v", w, err)
		}
		awaited, err := r.inspector().Keys(t.Context(), 10)
		if want := []delayqueue.AwaitedKey{{Key: r.key("m"), Waiters: 3}, {Key: r.key("k"), Waiters: 1}, {Key: r.key("n"), Waiters: 1}}; err != nil ||
			!slices.Equal(awaited, want) {
			t.Errorf("tasks wait for %+v, %v; want %+v", awaited, err, want)
		}
		// It is put first for one key, and keeps that position.
		if err := r.inspector().PutFirst(t.Context(), r.key("m"), delayqueue.Task(a)); err != nil {
			t.Error(err)
		}
		if got := r.Wake("m").First(); got != a {
			t.Errorf("%v was woken", got)
		}
		r.parkFor(a, "m", "n")
		if got, want := r.Waiting("m"), []string{"a", "m1", "m2"}; !slices.Equal(got, want) {
			t.Errorf("for m wait %v, want %v", got, want)
		}
		if err := r.inspector().Drop(t.Context(), delayqueue.Task(a)); err != nil {
			t.Error(err)
		}
		for key, want := range map[string][]string{"m": {"m1", "m2"}, "n": {}} {
			if got := r.Waiting(key); !slices.Equal(got, want) {
				t.Errorf("for %s wait %v, want %v", key, got, want)
			}
		}
	})
}
