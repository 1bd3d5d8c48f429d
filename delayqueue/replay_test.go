package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// archive takes tasks to asynq's archive, as a bound does, each with a result.
func (r *solo) archive(tasks ...delayqueue.Task) {
	r.Helper()
	for _, t := range tasks {
		r.OK(r.Client.HSet(r.Context(), "asynq:{"+t.Queue+"}:t:"+t.ID, "result", "the reason").Err())
		r.OK(r.Inspect.ArchiveTask(t.Queue, t.ID))
	}
}

func TestAReplayedTaskRunsBehindTheOthersWithoutItsOldResult(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("replayed")
	r.archive(task)
	for i := range 3 {
		_, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), asynq.TaskID(fmt.Sprint(i)))
		r.OK(err)
	}
	r.OK(r.inspector.Replay(t.Context(), task))
	info, err := r.Inspect.GetTaskInfo(task.Queue, task.ID)
	if err != nil || info.State != asynq.TaskStatePending || len(info.Result) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if archived, err := r.Inspect.ListArchivedTasks("default"); err != nil || len(archived) != 0 {
		t.Errorf("in the archive are %v, %v", archived, err)
	}
	order := make(chan string, 10)
	r.Serve(1, func(_ context.Context, id string) error {
		order <- id
		return nil
	})
	for _, want := range []string{"0", "1", "2", "replayed"} {
		if got := receive(t, order); got != want {
			t.Errorf("%s ran, want %s", got, want)
		}
	}
}

func TestAReplayedTaskCountsItsConflictsAnew(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("a")
	for range 3 {
		r.Park(task, "k")
	}
	behind := r.inLine("k", "behind")[0]
	r.archive(task) // by hand: its record and its entry are left
	r.OK(r.inspector.Replay(t.Context(), task))
	if left := r.Client.HGet(t.Context(), "asynq:{default}:t:a", line.WaitField).Val(); left != "" {
		t.Errorf("of its record are left %q", left)
	}
	if _, err := r.inspector.Find(t.Context(), task); !errors.Is(err, delayqueue.ErrNotWaiting) {
		t.Errorf("it waits before it has tried: %v", err)
	}
	r.Client.ZRem(t.Context(), "railtoken:waiters:{k}", "7:defaulta")
	replayed := time.Now().Add(-time.Second)
	if place := r.Park(task, "k"); place.Count != 1 || place.First.Before(replayed) {
		t.Errorf("its first conflict is %+v", place)
	}
	if got := r.Waiting("k"); !slices.Equal(got, []string{behind.ID, task.ID}) {
		t.Errorf("in line are %v, want the replayed one last", got)
	}
}

func TestOnlyAnArchivedTaskIsReplayed(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	parked, pending, running, deleted := r.inLine("k",
		"parked")[0], r.Delayed("pending"), r.Delayed("running"), r.Delayed("deleted")
	r.OK(r.Inspect.RunTask("default", "pending"))
	r.Begin(running)
	r.Remove(deleted)
	for task, want := range map[delayqueue.Task]delayqueue.State{
		parked:  delayqueue.StateRetry,
		pending: delayqueue.StatePending, running: delayqueue.StateActive,
	} {
		err := r.inspector.Replay(t.Context(), task)
		where, ok := errors.AsType[*delayqueue.NotArchivedError](err)
		if !errors.Is(err, delayqueue.ErrNotArchived) || !ok || where.State != want || where.Task != task {
			t.Errorf("%s: %v; want it to say %q", task, err, want)
		}
	}
	if w, err := r.inspector.Find(t.Context(), parked); err != nil || w.Conflicts != 2 {
		t.Errorf("the parked task is now %+v, %v", w, err)
	}
	for _, task := range []delayqueue.Task{deleted, {}, {Queue: "no", ID: "such"}} {
		if err := r.inspector.Replay(t.Context(), task); !errors.Is(err, delayqueue.ErrGone) {
			t.Errorf("%s: %v, want ErrGone", task, err)
		}
		if n := r.Client.Exists(t.Context(), "asynq:{"+task.Queue+"}:t:"+task.ID).Val(); n != 0 {
			t.Errorf("%s: replaying has made a task of nothing", task)
		}
	}
	if r.Client.SIsMember(t.Context(), "asynq:queues", "no").Val() {
		t.Error("replaying has made a queue")
	}
}

func TestConcurrentReplaysRunATaskOnce(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.Delayed("a")
	r.archive(task)
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := r.inspector.Replay(t.Context(), task); {
			case err == nil:
				done.Add(1)
			case !errors.Is(err, delayqueue.ErrNotArchived):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := done.Load(); n != 1 {
		t.Errorf("%d replays succeeded", n)
	}
	if pending := r.Client.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val(); !slices.Equal(pending,
		[]string{"a"}) {
		t.Errorf("pending are %v", pending)
	}
}

func TestReplayAllReplaysTheChosenTasks(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for i := range 250 { // some pages
		r.archive(r.Delayed(fmt.Sprintf("%03d", i)))
	}
	r.Client.ZAdd(t.Context(), "asynq:{default}:archived", redis.Z{Score: 1, Member: "its task is gone"})
	even := func(info *asynq.TaskInfo) bool {
		if string(info.Result) != "the reason" {
			t.Errorf("%s was asked about with the result %q", info.ID, info.Result)
		}
		return strings.ContainsAny(info.ID[2:], "02468")
	}
	for _, step := range []struct{ most, want, left int }{
		{0, 0, 250},
		{-1, 0, 250},
		{7, 7, 243},
		{1000, 118, 125},
		{1000, 0, 125},
	} {
		n, err := r.inspector.ReplayAll(t.Context(), "default", step.most, even)
		if err != nil || n != step.want {
			t.Errorf("at most %d: replayed %d, %v; want %d", step.most, n, err, step.want)
		}
		if left := r.Client.ZCard(t.Context(), "asynq:{default}:archived").Val() - 1; int(left) != step.left {
			t.Errorf("at most %d: %d are left, want %d", step.most, left, step.left)
		}
	}
	if head := r.Client.LRange(t.Context(), "asynq:{default}:pending", -1, -1).Val(); !slices.Equal(head,
		[]string{"000"}) {
		t.Errorf("the first to run is %v, want the one that was archived first", head)
	}
}

func TestReplayAllSkipsWhatHasLeftMeanwhile(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for _, id := range []string{"a", "b", "c"} {
		r.archive(r.Delayed(id))
	}
	n, err := r.inspector.ReplayAll(t.Context(), "default", 10, func(info *asynq.TaskInfo) bool {
		switch info.ID { // others are at work between the look and the replay
		case "a":
			r.Remove(delayqueue.Task{Queue: "default", ID: "a"})
		case "b":
			r.OK(r.Inspect.RunTask("default", "b"))
		}
		return true
	})
	if err != nil || n != 1 {
		t.Errorf("replayed %d, %v; want the one that was left", n, err)
	}
	if n := r.Client.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 2 {
		t.Errorf("%d are pending", n)
	}
}

func TestReplayAllReportsAMissingQueueAndAnEndedContext(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	all := func(*asynq.TaskInfo) bool { return true }
	if _, err := r.inspector.ReplayAll(t.Context(), "no such", 10, all); !errors.Is(err, asynq.ErrQueueNotFound) {
		t.Errorf("%v, want ErrQueueNotFound", err)
	}
	r.archive(r.Delayed("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := r.inspector.ReplayAll(ctx, "default", 10, all); !errors.Is(err, context.Canceled) || n != 0 {
		t.Errorf("%d, %v; want the context's error", n, err)
	}
}
