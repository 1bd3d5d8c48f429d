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

func TestATaskKnowsTheBoundItReached(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bounds delayqueue.Limits
		met    delayqueue.Conflict
		want   delayqueue.Limit
	}{
		"conflicts":             {delayqueue.Limits{Conflicts: 3}, delayqueue.Conflict{Count: 4}, delayqueue.ConflictsLimit},
		"below conflicts":       {delayqueue.Limits{Conflicts: 3}, delayqueue.Conflict{Count: 3}, delayqueue.NoLimit},
		"age":                   {delayqueue.Limits{Age: time.Hour}, delayqueue.Conflict{First: time.Now().Add(-61 * time.Minute)}, delayqueue.AgeLimit},
		"below age":             {delayqueue.Limits{Age: time.Hour}, delayqueue.Conflict{First: time.Now().Add(-59 * time.Minute)}, delayqueue.NoLimit},
		"a first in the future": {delayqueue.Limits{Age: time.Minute}, delayqueue.Conflict{Count: 3, First: time.Now().Add(time.Hour)}, delayqueue.NoLimit},
		"the first conflict":    {delayqueue.Limits{Conflicts: 1, Age: 1}, delayqueue.Conflict{Count: 1}, delayqueue.NoLimit},
		"none that is far away": {delayqueue.Limits{Total: 1 << 40}, delayqueue.Conflict{Count: 10_000_000, First: time.Unix(1, 0)}, delayqueue.NoLimit},
		"conflicts come before": {delayqueue.Limits{Conflicts: 1, Age: 1}, delayqueue.Conflict{Count: 9, First: time.Unix(1, 0)}, delayqueue.ConflictsLimit},
	} {
		if bound := tt.bounds.Reached(tt.met); bound != tt.want {
			t.Errorf("%s: bound %q, want %q", name, bound, tt.want)
		}
	}
}

func TestNobodyIsAskedAboutNoBound(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	client := shared.clientOf(t, "standalone")
	var trips counter
	client.AddHook(&trips)
	queue := r.newQueue(client, delayqueue.Options{})
	bounds := delayqueue.Limits{Conflicts: 1, Age: time.Hour}
	if bound, err := queue.Full(t.Context(), r.task("a"), r.key("k"), bounds); err != nil || bound != delayqueue.NoLimit {
		t.Errorf("bound %q, %v", bound, err)
	}
	if n := trips.n.Load(); n != 0 {
		t.Errorf("it took %d round trips", n)
	}
}

func TestAFirstConflictInTheFutureIsNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task, soon := r.begun("a"), time.Now().Add(time.Minute)
		r.set(task, "railtoken:retried", 0, "railtoken:conflicts", 2, "railtoken:first", time.Now().Add(time.Hour).UnixMicro())
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
		task, full := r.delayed("c"), delayqueue.Limits{Waiters: 1}
		var first delayqueue.Parked
		for i, tt := range []struct {
			key    string
			bounds delayqueue.Limits
			want   delayqueue.Limit
		}{
			{"k", full, delayqueue.WaitersLimit},
			{"k", delayqueue.Limits{Total: 2}, delayqueue.TotalLimit},
			{"other", full, delayqueue.WaitersLimit},
		} {
			if bound, err := r.queue.Full(t.Context(), task, r.key(tt.key), tt.bounds); err != nil || bound != tt.want {
				t.Errorf("conflict %d: bound %q, %v; want %q", i+1, bound, err, tt.want)
			}
			place := r.parkWith(task, tt.key, delayqueue.ParkOptions{Limits: tt.bounds})
			if r.hasPlace(task) || place.Count != i+1 {
				t.Errorf("conflict %d: %+v; want no place", i+1, place)
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
		if n := r.conflicts(task); n != 3 {
			t.Errorf("it has met %d", n)
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
		if place := r.parkWith(task, "k", delayqueue.ParkOptions{}); place.Count != 1 {
			t.Errorf("%+v", place)
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
			r.parksFor("put off", task, delayqueue.Parked{Timer: 90 * time.Second}, 90*time.Second)
		}
		if info, err := r.inspect.GetTaskInfo(task.Queue, task.ID); err != nil || info.State != asynq.TaskStateRetry || info.Retried != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if n := r.conflicts(task); n != 1 {
			t.Errorf("%d conflicts: it has not met another", n)
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
