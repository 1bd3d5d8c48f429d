package delayqueue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// fail ends the run of an active task as asynq does after an error; a Conn has fetched it.
func (r *solo) fail(t delayqueue.Task) {
	r.Helper()
	of := line.Task(t)
	_, err := r.Client.TxPipelined(r.Context(), func(p redis.Pipeliner) error {
		p.HSet(r.Context(), of.Hash(), "pending_since", "a run", "state", "retry")
		p.LRem(r.Context(), of.Prefix()+"active", 0, t.ID)
		p.ZRem(r.Context(), of.Prefix()+"lease", t.ID)
		p.ZAdd(r.Context(), of.Prefix()+"retry", redis.Z{Score: float64(time.Now().Add(24 * time.Hour).Unix()), Member: t.ID})
		return nil
	})
	r.OK(err)
}

// heads are what becomes of the first task of a sequence, and whether it is the head then.
var heads = map[string]struct {
	becomes            func(r *solo, first delayqueue.Task)
	fifo, strict       bool
	failed, drop, wake bool // of the head: it has failed, can be dropped, is woken
}{
	"failed":    {func(r *solo, first delayqueue.Task) { r.fail(r.Begin(first)) }, false, true, true, true, false},
	"scheduled": {func(*solo, delayqueue.Task) {}, true, true, false, true, false},
	"parked":    {func(r *solo, first delayqueue.Task) { r.Park(first, "k") }, true, true, false, true, true},
	"running":   {func(r *solo, first delayqueue.Task) { r.Begin(first) }, true, true, false, false, false},
	"archived": {func(r *solo, first delayqueue.Task) {
		r.fail(r.Begin(first))
		r.OK(r.Inspect.ArchiveTask(first.Queue, first.ID))
	}, false, false, false, false, false},
}

// onHeads plays each of them under both orders. Behind the first task stand two that are parked: the last was refused first.
func onHeads(t *testing.T, test func(t *testing.T, r *solo, tasks []delayqueue.Task, name string, isHead bool)) {
	t.Helper()
	t.Parallel()
	for name, head := range heads {
		for order, isHead := range map[string]bool{"FIFO": head.fifo, "StrictFIFO": head.strict} {
			t.Run(name+", "+order, func(t *testing.T) {
				t.Parallel()
				r := newSolo(t)
				tasks := []delayqueue.Task{r.Delayed("first"), r.Delayed("second"), r.Delayed("third")}
				for _, task := range tasks {
					_, err := r.Engine.Join(t.Context(), line.Task(task), "k", line.JoinOptions{Strict: order == "StrictFIFO"})
					r.OK(err)
				}
				r.Park(tasks[2], "k")
				r.Park(tasks[1], "k")
				head.becomes(r, tasks[0])
				if name == "failed" && order == "FIFO" { // its handler has left, and joins again at the end
					_, err := r.Engine.Remove(t.Context(), line.Task(tasks[0]), "k")
					r.OK(err)
				}
				test(t, r, tasks, name, isHead)
			})
		}
	}
}

func TestAWakeIsForTheHeadAlone(t *testing.T) {
	onHeads(t, func(t *testing.T, r *solo, tasks []delayqueue.Task, name string, isHead bool) {
		woken, err := r.queue.Wake(t.Context(), "k", delayqueue.WakeOptions{Most: 2})
		want, unable := []delayqueue.Task{tasks[1]}, delayqueue.Task{}
		switch {
		case isHead && heads[name].wake:
			want = tasks[:1]
		case isHead:
			want, unable = nil, tasks[0]
		}
		if err != nil || !slices.Equal(woken.Tasks, want) || woken.Head != unable {
			t.Errorf("%+v, %v; want %v woken, and %s named", woken, err, want, unable)
		}
		if r.State(tasks[2]) != asynq.TaskStateRetry {
			t.Errorf("the last is %v", r.State(tasks[2]))
		}
		sequence, err := r.inspector.Sequence(t.Context(), "k", 1)
		if failed := isHead && heads[name].failed; err != nil || len(sequence) != 1 || sequence[0].Failed != failed {
			t.Errorf("the first of the sequence is %+v, %v; want that it has failed: %v", sequence, err, failed)
		}
	})
}

func TestBehindADroppedHeadTheNextIsWoken(t *testing.T) {
	onHeads(t, func(t *testing.T, r *solo, tasks []delayqueue.Task, name string, isHead bool) {
		err := r.inspector.Drop(t.Context(), tasks[0])
		if !heads[name].drop || !isHead {
			where, ok := errors.AsType[*delayqueue.NotWaitingError](err)
			if !ok || r.Client.Exists(t.Context(), hash(tasks[0])).Val() != 1 || r.State(tasks[1]) != asynq.TaskStateRetry {
				t.Errorf("%v, %v: want it refused, and nothing changed", where, err)
			}
			return
		}
		if err != nil || r.Client.Exists(t.Context(), hash(tasks[0])).Val() != 0 {
			t.Fatalf("it is there still: %v", err)
		}
		if r.State(tasks[1]) != asynq.TaskStatePending || r.State(tasks[2]) != asynq.TaskStateRetry {
			t.Errorf("the next is %v, and the last %v", r.State(tasks[1]), r.State(tasks[2]))
		}
		if left, err := r.inspector.Sequence(t.Context(), "k", 10); err != nil || len(left) != 2 || left[0].Task != tasks[1] {
			t.Errorf("the sequence is %+v, %v", left, err)
		}
	})
}
