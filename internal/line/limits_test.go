package line_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

func TestNoLimitCostsNoCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	client := shared.clientOf(t, "standalone")
	var trips counter
	client.AddHook(&trips)
	queue := r.newQueue(client, line.Options{})
	if full, err := queue.Full(t.Context(), r.task("a"), r.key("k"), 0, 0); err != nil || full != "" {
		t.Errorf("full %q, %v", full, err)
	}
	if n := trips.n.Load(); n != 0 {
		t.Errorf("it took %d round trips", n)
	}
}

func TestAFirstConflictInTheFutureIsNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task, soon := r.begun("a"), time.Now().Add(time.Minute)
		r.rewait(task, func(w *line.Wait) { w.Conflict = line.Conflict{Count: 2, First: time.Now().Add(time.Hour)} })
		if place := r.Park(task, "k"); place.First.After(soon) || place.Count != 3 {
			t.Errorf("%+v", place)
		}
	})
}

// A task that finds the waiters full comes back by itself, and may do so many times: what it has met must still count.
func TestATaskThatFindsNoRoomKeepsItsCount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.Park(r.Delayed("a"), "k")
		r.Park(r.Delayed("b"), "other")
		task, full := r.Delayed("c"), line.ParkOptions{MaxWaiters: 1}
		var first line.Parked
		for i, tt := range []struct {
			key    string
			limits line.ParkOptions
			want   string
		}{
			{"k", full, line.WaitersFull},
			{"k", line.ParkOptions{MaxTotal: 2}, line.TotalFull},
			{"other", full, line.WaitersFull},
		} {
			full, err := r.Engine.Full(t.Context(), task, r.key(tt.key), tt.limits.MaxWaiters, tt.limits.MaxTotal)
			if err != nil || full != tt.want {
				t.Errorf("conflict %d: full %q, %v; want %q", i+1, full, err, tt.want)
			}
			place := r.parkWith(task, tt.key, tt.limits)
			if r.hasPlace(task) || place.Count != i+1 {
				t.Errorf("conflict %d: %+v; want no place", i+1, place)
			}
			if i == 0 {
				first = place
			} else if !place.First.Equal(first.First) {
				t.Errorf("conflict %d: the first was at %v, want %v", i+1, place.First, first.First)
			}
			if got := r.Waiting("k"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("for k wait %v", got)
			}
			if state := r.State(task); state != asynq.TaskStateRetry {
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
		task := r.Delayed("a")
		r.Park(task, "k")
		r.Begin(task)
		if err := r.Engine.Forget(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if place := r.parkWith(task, "k", line.ParkOptions{}); place.Count != 1 {
			t.Errorf("%+v", place)
		}
	})
}

func TestAPutOffTaskWaitsForItsTimer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.Delayed("a", asynq.MaxRetry(0))
		r.Park(task, "k")
		r.Wake("k")
		r.Begin(task)
		opts := line.ParkOptions{RetryAfter: 90 * time.Second}.Of("nonce")
		for range 2 { // the second is repeated, as after a lost reply
			if err := r.Engine.Postpone(t.Context(), task, opts); err != nil {
				t.Fatal(err)
			}
			r.parksFor("put off", task, line.Parked{Timer: 90 * time.Second}, 90*time.Second)
		}
		if info, err := r.Inspect.GetTaskInfo(task.Queue, task.ID); err != nil || info.State != asynq.TaskStateRetry ||
			info.Retried != 0 {
			t.Errorf("%+v, %v", info, err)
		}
		if n := r.conflicts(task); n != 1 {
			t.Errorf("%d conflicts: it has not met another", n)
		}
		r.indexed("put off")
		if lists := r.listsOf(task); !slices.Equal(lists, []string{"retry"}) {
			t.Errorf("it is in %v", lists)
		}
		for _, other := range []line.Task{task, r.task("gone")} {
			if err := r.Engine.Postpone(t.Context(), other,
				line.ParkOptions{}.Of("another run")); !errors.Is(err, line.ErrGone) {
				t.Errorf("%s: %v, want ErrGone", other, err)
			}
		}
	})
}

// asynq gives a run up when its lease has ended: until then it may acknowledge it, and after that another run may have
// begun.
func TestALateParkAwaitsTheLeasesEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.begun("a")
		late := line.ParkOptions{RetryAfter: time.Minute}.Of("run").Late()
		calls := map[string]func() error{
			"park":     func() error { _, err := r.Engine.Park(t.Context(), task, r.key("k"), late); return err },
			"postpone": func() error { return r.Engine.Postpone(t.Context(), task, late) },
		}
		for name, call := range calls {
			r.Begin(task)
			if err := call(); !errors.Is(err, line.ErrNotYet) || r.State(task) != asynq.TaskStateActive {
				t.Errorf("%s: %v", name, err)
			}
			ended := redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: task.ID}
			r.Client.ZAdd(t.Context(), "asynq:{"+r.name+"}:lease", ended)
			if err := call(); err != nil || !slices.Equal(r.listsOf(task), []string{"retry"}) {
				t.Errorf("%s: %v, in %v", name, err, r.listsOf(task))
			}
			r.Begin(task)
			late = late.Of("the run after the " + name)
			r.Client.ZRem(t.Context(), "asynq:{"+r.name+"}:lease", task.ID)
			if err := call(); !errors.Is(err, line.ErrGone) {
				t.Errorf("%s: %v, want ErrGone", name, err)
			}
			r.Client.ZAdd(t.Context(), "asynq:{"+r.name+"}:lease",
				redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: task.ID})
		}
	})
}
