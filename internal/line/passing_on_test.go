package line_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
)

// A key is collected by one task at a time. One that is refused leaves no mark, and none takes away that of another.
func TestAKeyIsCollectedByOneTaskAtATime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, keys := t.Context(), r.keysOf([]string{"a", "b", "c"})
		first, ok := r.Engine.Collecting(ctx, keys[:2], time.Minute)
		if !ok {
			t.Fatal("nobody collects, and a task may not")
		}
		if ended, ok := r.Engine.Collecting(ctx, keys[1:], time.Minute); ok || ended != nil {
			t.Error("two tasks collect one key")
		}
		if second, ok := r.Engine.Collecting(ctx, keys[2:], time.Minute); !ok {
			t.Error("a task that was refused has left a mark")
		} else {
			second(ctx)
		}
		first(ctx)
		again, ok := r.Engine.Collecting(ctx, keys, time.Hour)
		if !ok {
			t.Fatal("a task that has ended has left a mark")
		}
		first(ctx) // too late
		if left := r.Client.TTL(ctx, "railtoken:collect:{"+keys[0]+"}").Val(); left < 59*time.Minute || left > time.Hour {
			t.Errorf("a mark is left for %v", left)
		}
		again(ctx)
	})
}

// A task that leaves its sequence without its key wakes the next one; one that stays does not.
func TestATaskThatLeavesItsSequenceWakesTheNext(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			if _, err := r.Engine.Join(t.Context(), r.begun(id), r.key("k"), line.JoinOptions{Begins: true}); err != nil {
				t.Fatal(err)
			}
		}
		r.parkWith(r.task("b"), "k", line.ParkOptions{InOrder: true, Ahead: 1})
		for _, stays := range []bool{true, false} {
			if err := r.Engine.ForwardWake(t.Context(), r.task("a"), stays); err != nil {
				t.Fatal(err)
			}
			if woken := r.State(r.task("b")) == asynq.TaskStatePending; woken == stays {
				t.Errorf("the first one stays: %v, and the next one is woken: %v", stays, woken)
			}
		}
		if front, err := r.Engine.Front(t.Context(), r.key("k")); err != nil || !slices.Equal(front.Next, []line.Task{r.task("b")}) {
			t.Errorf("the front is %+v, %v", front, err)
		}
	})
}

// WakeNext tells of the head that it could not wake.
func TestAHeadThatRunsIsNotWoken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		if _, err := r.Engine.Join(t.Context(), r.begun("a"), r.key("k"), line.JoinOptions{Begins: true, Works: true}); err != nil {
			t.Fatal(err)
		}
		w, err := r.Engine.WakeNext(t.Context(), r.key("k"), line.WakeOptions{})
		if err != nil || w.Head != r.task("a") || !w.Begun || w.Lost || len(w.Tasks) > 0 {
			t.Errorf("%+v, %v", w, err)
		}
	})
}

func TestTheFirstWaiterIsKnown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.Park(r.Delayed("a"), "k")
		r.Park(r.Delayed("b"), "k")
		for id, want := range map[string]bool{"a": true, "b": false, "never parked": false} {
			if got := r.Engine.IsFirst(t.Context(), r.task(id)); got != want {
				t.Errorf("%s is the first: %v", id, got)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if r.Engine.IsFirst(over, r.task("a")) {
			t.Error("without an answer it is the first")
		}
	})
}

// Runs are told of a task that waits or is on its way, and of no other.
func TestATaskThatHasEndedSupersedesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, "standalone")
	task := r.Delayed("successor")
	r.before(task, "g", "k")
	s := holdings.Supersession{Keys: r.keysOf([]string{"k"}), Group: "g", Queue: task.Queue, ID: task.ID}
	var holder, itself told
	r.Engine.Held().Add(&holdings.Holding{Queue: r.name, ID: "holder", Keys: s.Keys, Holder: &holder})
	r.Engine.Held().Add(&holdings.Holding{Queue: r.name, ID: task.ID, Keys: s.Keys, Holder: &itself})
	r.Engine.Held().Add(&holdings.Holding{Queue: r.name, ID: "cannot be told", Keys: s.Keys})
	message := r.field(task, "msg")
	for i, tc := range []struct {
		state string
		spoil func()
		want  int
	}{
		{state: "retry", want: 1},
		{state: "pending", want: 1},
		{state: "active", want: 1},
		{state: "archived"},
		{state: "completed"},
		{state: "scheduled"},
		{state: "retry", spoil: func() { r.rewait(task, func(w *line.Wait) { w.Attempt++ }) }},
		{state: "retry", spoil: func() { r.rewait(task, func(w *line.Wait) { w.Attempt--; w.Count = 0 }) }},
		{state: "active", spoil: func() { r.set(task, "msg", "\x0f") }},
		{state: "active", spoil: func() { r.set(task, "msg", message) }, want: 1},
	} {
		r.set(task, "state", tc.state)
		if tc.spoil != nil {
			tc.spoil()
		}
		holder.times = 0
		if err := line.CarryOut(t.Context(), r.Engine, s, r.Engine.Held().Of(s.Keys)); err != nil {
			t.Fatal(err)
		}
		if holder.times != tc.want || itself.times != 0 {
			t.Errorf("case %d, %s: the holder is told %d times, want %d, and the task itself %d", i, tc.state, holder.times, tc.want, itself.times)
		}
	}
}

// Nobody else would: the task behind it may not take the key before.
func TestACancelledHeadLetsTheNextOneRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			r.enters(id)
			r.Park(r.task(id), "k")
		}
		if what, err := r.Engine.Cancel(t.Context(), r.task("a"), line.Cancellation{By: "ann"}); err != nil || what != line.Ended {
			t.Fatal(what, err)
		}
		if state := r.State(r.task("b")); state != asynq.TaskStatePending {
			t.Errorf("the next one is %v", state)
		}
	})
}

// A cancellation that its run has not carried out is carried out by whoever looks, and leaves nothing.
func TestACancellationThatIsLeftIsCarriedOut(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	cancelled := func() int64 { return r.Client.ZCard(t.Context(), "railtoken:cancelled").Val() }
	waits, runs, gone := r.Delayed("waits"), r.Begin(r.Delayed("runs")), r.Delayed("gone")
	for _, task := range []line.Task{waits, runs, gone} {
		r.Client.HSet(t.Context(), task.Hash(), line.CancelField, `{"by":"ann","why":"wrong"}`, "pending_since", "a run of another process")
		r.Client.ZAdd(t.Context(), "railtoken:cancelled", redis.Z{Member: task.Entry(), Score: 1})
	}
	r.Client.HDel(t.Context(), gone.Hash(), line.CancelField)
	for range 2 {
		if err := r.Engine.CarryOutCancels(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := r.Inspect.GetTaskInfo("default", "waits")
		if err != nil || info.State != asynq.TaskStateArchived || info.LastErr != "railtoken: cancelled by ann: wrong" {
			t.Errorf("%+v, %v", info, err)
		}
		if r.Client.HExists(t.Context(), waits.Hash(), line.CancelField).Val() {
			t.Error("a task that has ended is still cancelled")
		}
		if got := r.State(runs); got != asynq.TaskStateActive || !r.Client.HExists(t.Context(), runs.Hash(), line.CancelField).Val() {
			t.Errorf("a task that runs elsewhere is %v", got)
		}
		if n := cancelled(); n != 1 {
			t.Errorf("%d cancellations are not over", n)
		}
	}
	c, ok := line.CancellationIn("railtoken: cancelled by ann: wrong")
	if !ok || c.By != "ann" || c.Why != "wrong" {
		t.Errorf("%+v, %v", c, ok)
	}
	if _, ok := line.CancellationIn("another error"); ok {
		t.Error("another error is a cancellation")
	}
}

// The reports of workers say how many tasks wait for which keys, and for how long.
func TestReportsSayWhatTasksWaitFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for id, key := range map[string]string{"a": "k", "b": "k", "c": "l"} {
			r.Park(r.Delayed(id), key)
		}
		older := float64(time.Now().Add(-time.Hour).UnixMicro())
		r.Client.ZAdd(t.Context(), r.registry("k"), redis.Z{Member: entry(r.task("b")), Score: older})
		awaited := line.Awaited{Engine: r.Engine}
		if n, err := awaited.Count(t.Context()); n != 3 || err != nil {
			t.Errorf("%d tasks wait, %v", n, err)
		}
		keys := r.keysOf([]string{"k", "l", "none"})
		found, err := awaited.Waiting(t.Context(), keys)
		if err != nil || len(found) != 3 {
			t.Fatalf("%v, %v", found, err)
		}
		if p := found[keys[0]]; p.Waiting != 2 || p.Oldest < time.Hour || p.Oldest > time.Hour+limit {
			t.Errorf("for k %+v", p)
		}
		if p := found[keys[1]]; p.Waiting != 1 || p.Oldest > limit {
			t.Errorf("for l %+v", p)
		}
		if p := found[keys[2]]; p != (holdings.Point{}) {
			t.Errorf("for none %+v", p)
		}
		r.Client.ZAdd(t.Context(), r.index(), redis.Z{Member: "no entry", Score: 0})
		for n, want := range map[int][]string{10: {keys[0], keys[1]}, 1: nil} {
			if got, err := awaited.Awaited(t.Context(), n); err != nil || !slices.Equal(got, want) {
				t.Errorf("%d tasks wait for %v, %v", n, got, err)
			}
		}
	})
}

// A head that runs wakes the next one when it releases the key: no wake is owed any more. Where only tasks wait that cannot run, servers look
// again.
func TestNoWakeIsOwedBehindAHeadThatRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		if _, err := r.Engine.Join(t.Context(), r.begun("a"), r.key("k"), line.JoinOptions{Begins: true}); err != nil {
			t.Fatal(err)
		}
		r.Park(r.Delayed("b"), "l")
		r.Client.Set(t.Context(), "asynq:{"+r.name+"}:paused", 1, 0)
		owed := r.index() + ":owed"
		r.Client.ZAdd(t.Context(), owed, redis.Z{Score: 1, Member: r.registry("k")}, redis.Z{Score: 1, Member: r.registry("l")})
		if err := r.Engine.PayOwed(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := r.Client.ZRangeWithScores(t.Context(), owed, 0, -1).Val()
		if len(left) != 1 || left[0].Member != r.registry("l") {
			t.Fatalf("owed are %v", left)
		}
		if in := time.Until(time.UnixMilli(int64(left[0].Score))); in > 10*time.Second || in < 5*time.Second {
			t.Errorf("it is looked at again in %v", in)
		}
	})
}
