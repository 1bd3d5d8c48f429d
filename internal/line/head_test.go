package line_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// again enqueues a task once more whose ID was free again.
func (r *rig) again(t line.Task, opts ...asynq.Option) {
	r.Helper()
	opts = append([]asynq.Option{asynq.Queue(t.Queue), asynq.TaskID(t.ID)}, opts...)
	if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), opts...); err != nil {
		r.Fatal(err)
	}
}

// failed ends the run of an active task as asynq does after an error; a Conn has fetched it.
func (r *rig) failed(t line.Task) {
	r.Helper()
	r.set(t, "pending_since", "a run", "state", "retry")
	_, err := r.Client.Pipelined(r.Context(), func(p redis.Pipeliner) error {
		p.LRem(r.Context(), t.Prefix()+"active", 0, t.ID)
		p.ZRem(r.Context(), t.Prefix()+"lease", t.ID)
		p.ZAdd(r.Context(), t.Prefix()+"retry", redis.Z{Score: float64(time.Now().Add(24 * time.Hour).Unix()), Member: t.ID})
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
}

// leased sets the end of asynq's lease on an active task.
func (r *rig) leased(t line.Task, end time.Duration) {
	r.Helper()
	if err := r.Client.ZAdd(r.Context(), t.Prefix()+"lease", redis.Z{
		Score: float64(time.Now().Add(end).Unix()), Member: t.ID,
	}).Err(); err != nil {
		r.Fatal(err)
	}
}

// heads are what may become of the first task of a sequence, which has joined and is active.
var heads = map[string]struct {
	becomes      func(r *rig, first line.Task)
	fifo, strict bool // it stays the head
	lost         bool // its worker has died
}{
	"it runs":                    {func(*rig, line.Task) {}, true, true, false},
	"its worker has just died":   {func(r *rig, first line.Task) { r.leased(first, -10*time.Second) }, true, true, true},
	"the recoverer may be at it": {func(r *rig, first line.Task) { r.leased(first, -29*time.Second) }, true, true, false},
	"a heartbeat is late":        {func(r *rig, first line.Task) { r.leased(first, 0) }, true, true, false},
	"it has no lease":            {func(r *rig, first line.Task) { r.Client.ZRem(r.Context(), first.Prefix()+"lease", first.ID) }, true, true, true},
	"it has failed":              {func(r *rig, first line.Task) { r.failed(first) }, false, true, false},
	"it is retried soon": {func(r *rig, first line.Task) {
		r.failed(first)
		soon := redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: first.ID}
		if err := r.Client.ZAdd(r.Context(), first.Prefix()+"retry", soon).Err(); err != nil {
			r.Fatal(err)
		}
	}, true, true, false},
	"it is parked": {func(r *rig, first line.Task) { r.Park(first, "k") }, true, true, false},
	"its timer has brought it back": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.timer(first)
	}, true, true, false},
	"it was archived": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		if err := r.Inspect.ArchiveTask(first.Queue, first.ID); err != nil {
			r.Fatal(err)
		}
	}, false, false, false},
	"it was deleted": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.Remove(first)
	}, false, false, false},
	"its ID is scheduled": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.Remove(first)
		r.again(first, asynq.ProcessIn(time.Hour))
	}, false, false, false},
	"its ID was enqueued again": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.Remove(first)
		r.again(first)
	}, false, false, false},
	"its ID has another key": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.Remove(first)
		r.again(first)
		r.Begin(first)
		r.joins(first, "other", 1)
	}, false, false, false},
	"its ID has failed": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.Remove(first)
		r.again(first)
		r.failed(r.Begin(first))
	}, false, false, false},
	"its deadline has passed": {func(r *rig, first line.Task) {
		r.Park(first, "k")
		r.rewait(first, func(w *line.Wait) { w.Deadline = time.Now().Add(-time.Second).Unix() })
	}, false, false, false},
}

func TestAReusedIDJoinsAtTheEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first, next := r.begun("first"), r.begun("next")
		r.joins(first, "k", 1)
		r.joins(next, "k", 2)
		r.Park(first, "k")
		r.Remove(first)
		if _, err := r.Engine.EnqueueInOrder(t.Context(), r.key("k"), "test", nil, nil, asynq.Queue(r.name), asynq.TaskID("first")); err != nil {
			t.Fatal(err)
		}
		at, err := r.Engine.Join(t.Context(), next, r.key("k"), line.JoinOptions{})
		if err != nil || at.Ahead != 0 {
			t.Errorf("a task that came before it stands at %+v, %v", at, err)
		}
		at, err = r.Engine.Join(t.Context(), first, r.key("k"), line.JoinOptions{})
		if err != nil || at.Ahead != 1 {
			t.Errorf("it stands at %+v, %v", at, err)
		}
	})
}

func TestAStaleEntryRunsNoTaskEarly(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first, next := r.Delayed("first"), r.Delayed("next")
		r.Park(first, "k")
		r.Park(next, "k")
		r.Remove(first)
		r.again(first)
		r.failed(r.Begin(first)) // it is retried tomorrow
		if woken := r.Wake("k"); woken.First() != next {
			t.Errorf("woke %+v, want %s", woken, next)
		}
		if got := r.State(first); got != asynq.TaskStateRetry {
			t.Errorf("the task that has the ID now is %v", got)
		}
	})
}
