package delayqueue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// met notes what a task has met before.
func (r *rig) met(t delayqueue.Task, attempt int, c delayqueue.Conflict) delayqueue.Task {
	r.Helper()
	first := c.First.UnixMicro()
	if c.First.IsZero() {
		first = 0
	}
	r.set(t, "railtoken:retried", attempt, "railtoken:conflicts", c.Count, "railtoken:first", first)
	return t
}

func TestATaskKnowsTheBoundItReached(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for name, tt := range map[string]struct {
			bounds delayqueue.Bounds
			before delayqueue.Conflict
			want   delayqueue.Bound
		}{
			"conflicts":             {delayqueue.Bounds{Conflicts: 3}, delayqueue.Conflict{Count: 3}, delayqueue.ConflictsBound},
			"below conflicts":       {delayqueue.Bounds{Conflicts: 3}, delayqueue.Conflict{Count: 2}, delayqueue.NoBound},
			"age":                   {delayqueue.Bounds{Age: time.Hour}, delayqueue.Conflict{First: time.Now().Add(-61 * time.Minute)}, delayqueue.AgeBound},
			"below age":             {delayqueue.Bounds{Age: time.Hour}, delayqueue.Conflict{First: time.Now().Add(-59 * time.Minute)}, delayqueue.NoBound},
			"none that is far away": {delayqueue.Bounds{Total: 1 << 40}, delayqueue.Conflict{Count: 10_000_000, First: time.Unix(1, 0)}, delayqueue.NoBound},
			"conflicts come before": {delayqueue.Bounds{Conflicts: 1, Age: 1}, delayqueue.Conflict{Count: 9, First: time.Unix(1, 0)}, delayqueue.ConflictsBound},
		} {
			task := r.met(r.begun(name), 2, tt.before)
			got, bound, err := r.queue.Bound(t.Context(), task, r.key(name), 2, tt.bounds)
			if err != nil || bound != tt.want || got.Count != tt.before.Count+1 {
				t.Errorf("%s: %+v, bound %q, %v; want bound %q", name, got, bound, err, tt.want)
			}
			if !tt.before.First.IsZero() && !got.First.Equal(tt.before.First.Truncate(time.Microsecond)) {
				t.Errorf("%s: it waits since %v, want %v", name, got.First, tt.before.First)
			}
			// What it met before its handler ran does not count.
			if got, bound, err := r.queue.Bound(t.Context(), task, r.key(name), 3, tt.bounds); err != nil || bound != delayqueue.NoBound || got.Count != 1 {
				t.Errorf("%s, at the next attempt: %+v, bound %q, %v", name, got, bound, err)
			}
		}
	})
}

func TestNobodyIsAskedAboutNoBound(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	client := shared.clientOf(t, "standalone")
	var trips counter
	client.AddHook(&trips)
	queue := r.newQueue(client, delayqueue.Options{})
	if c, bound, err := queue.Bound(t.Context(), r.task("a"), r.key("k"), 0, delayqueue.Bounds{}); err != nil || bound != delayqueue.NoBound || c.Count != 0 {
		t.Errorf("%+v, bound %q, %v", c, bound, err)
	}
	if n := trips.n.Load(); n != 0 {
		t.Errorf("it took %d round trips", n)
	}
}

func TestAFirstConflictInTheFutureIsNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task, soon := r.begun("a"), time.Now().Add(time.Minute)
		r.met(task, 0, delayqueue.Conflict{Count: 2, First: time.Now().Add(time.Hour)})
		c, bound, err := r.queue.Bound(t.Context(), task, r.key("k"), 0, delayqueue.Bounds{Age: time.Minute})
		if err != nil || bound != delayqueue.NoBound || c.First.After(soon) {
			t.Errorf("%+v, bound %q, %v", c, bound, err)
		}
		if place := r.park(task, "k"); place.First.After(soon) || place.Count != 3 {
			t.Errorf("%+v", place)
		}
	})
}

// A task that finds the waiters full comes back by itself, and may do so many times: what it has met must still count.
func TestATaskWithoutAPlaceKeepsItsCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.park(r.delayed("a"), "k")
		r.park(r.delayed("b"), "other")
		task, full := r.delayed("c"), delayqueue.Bounds{Waiters: 1}
		var first delayqueue.Place
		for i, tt := range []struct {
			key    string
			bounds delayqueue.Bounds
			want   delayqueue.Bound
		}{
			{"k", full, delayqueue.WaitersBound},
			{"k", delayqueue.Bounds{Total: 2}, delayqueue.TotalBound},
			{"other", full, delayqueue.WaitersBound},
		} {
			if _, bound, err := r.queue.Bound(t.Context(), task, r.key(tt.key), 0, tt.bounds); err != nil || bound != tt.want {
				t.Errorf("conflict %d: bound %q, %v; want %q", i+1, bound, err, tt.want)
			}
			place := r.parkWith(task, tt.key, delayqueue.ParkOptions{Bounds: tt.bounds})
			if place.Bound != tt.want || place.Count != i+1 {
				t.Errorf("conflict %d: %+v; want bound %q", i+1, place, tt.want)
			}
			if i == 0 {
				first = place
			} else if !place.First.Equal(first.First) {
				t.Errorf("conflict %d: the first was at %v, want %v", i+1, place.First, first.First)
			}
			if got := r.waiting("k"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("for k wait %v", got)
			}
			if state := r.state(task); state != asynq.TaskStateRetry {
				t.Errorf("conflict %d: it is %v", i+1, state)
			}
		}
		if c, bound, err := r.queue.Bound(t.Context(), task, r.key("k"), 0, delayqueue.Bounds{Conflicts: 3}); err != nil || bound != delayqueue.ConflictsBound || c.Count != 4 {
			t.Errorf("%+v, bound %q, %v", c, bound, err)
		}
	})
}

func TestForgottenConflictsCountAnew(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a")
		r.park(task, "k")
		r.begin(task)
		if err := r.queue.Forget(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if c, _, err := r.queue.Bound(t.Context(), task, r.key("k"), 0, delayqueue.Bounds{Conflicts: 9}); err != nil || c.Count != 1 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

func TestAPutOffTaskWaitsForItsTimer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a", asynq.MaxRetry(0))
		r.park(task, "k")
		r.wake("k")
		r.begin(task)
		opts := delayqueue.ParkOptions{Look: 90 * time.Second}.Of("nonce", nil)
		for range 2 { // the second is repeated, as after a lost reply
			if err := r.queue.Postpone(t.Context(), task, opts); err != nil {
				t.Fatal(err)
			}
			r.parksFor("put off", task, delayqueue.Place{Timer: 90 * time.Second}, 90*time.Second)
		}
		if info, err := r.inspect.GetTaskInfo(task.Queue, task.ID); err != nil || info.State != asynq.TaskStateRetry || info.Retried != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if n, err := r.queue.Conflicts(t.Context(), task, 0); err != nil || n != 1 {
			t.Errorf("%d conflicts, %v: it has not met another", n, err)
		}
		r.indexed("put off")
		if lists := r.listsOf(task); !slices.Equal(lists, []string{"retry"}) {
			t.Errorf("it is in %v", lists)
		}
		for _, other := range []delayqueue.Task{task, r.task("gone")} {
			if err := r.queue.Postpone(t.Context(), other, delayqueue.ParkOptions{}.Of("another run", nil)); !errors.Is(err, delayqueue.ErrGone) {
				t.Errorf("%s: %v, want ErrGone", other, err)
			}
		}
	})
}

// asynq gives a run up when its lease has ended: until then it may acknowledge it, and after that another run may have begun.
func TestALateParkAwaitsTheLeasesEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.begun("a")
		late := delayqueue.ParkOptions{Look: time.Minute}.Of("run", nil).Late()
		calls := map[string]func() error{
			"park":     func() error { _, err := r.queue.Park(t.Context(), task, r.key("k"), late); return err },
			"postpone": func() error { return r.queue.Postpone(t.Context(), task, late) },
		}
		for name, call := range calls {
			r.begin(task)
			if err := call(); !errors.Is(err, delayqueue.ErrNotYet) || r.state(task) != asynq.TaskStateActive {
				t.Errorf("%s: %v", name, err)
			}
			ended := redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: task.ID}
			r.client.ZAdd(t.Context(), "asynq:{"+r.name+"}:lease", ended)
			if err := call(); err != nil || !slices.Equal(r.listsOf(task), []string{"retry"}) {
				t.Errorf("%s: %v, in %v", name, err, r.listsOf(task))
			}
			r.begin(task)
			late = late.Of("the run after the "+name, nil)
			r.client.ZRem(t.Context(), "asynq:{"+r.name+"}:lease", task.ID)
			if err := call(); !errors.Is(err, delayqueue.ErrGone) {
				t.Errorf("%s: %v, want ErrGone", name, err)
			}
			r.client.ZAdd(t.Context(), "asynq:{"+r.name+"}:lease", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: task.ID})
		}
	})
}
