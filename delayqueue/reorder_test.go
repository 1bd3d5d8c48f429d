package delayqueue_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
)

// inLine parks tasks for a key and returns them.
func (r *solo) inLine(key string, ids ...string) []delayqueue.Task {
	r.Helper()
	var tasks []delayqueue.Task
	for _, id := range ids {
		tasks = append(tasks, r.parkIn(id, key, 0))
	}
	return tasks
}

func TestAReorderedWaiterIsWokenInItsNewPosition(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.inLine("k", "a", "b", "c", "d")
	since := r.parked("k")[2].Since
	for _, step := range []struct {
		move func() error
		want []string
	}{
		{func() error { return r.inspector.PutFirst(t.Context(), "k", tasks[2]) }, []string{"c", "a", "b", "d"}},
		{func() error { return r.inspector.PutFirst(t.Context(), "k", tasks[2]) }, []string{"c", "a", "b", "d"}},
		{func() error { return r.inspector.PutFirst(t.Context(), "k", tasks[3]) }, []string{"d", "c", "a", "b"}},
		{func() error { return r.inspector.PutLast(t.Context(), "k", tasks[0]) }, []string{"d", "c", "b", "a"}},
		{func() error { return r.inspector.PutLast(t.Context(), "k", tasks[0]) }, []string{"d", "c", "b", "a"}},
		{func() error { return r.inspector.PutLast(t.Context(), "k", tasks[3]) }, []string{"c", "b", "a", "d"}},
	} {
		r.OK(step.move())
		if got := r.Waiting("k"); !slices.Equal(got, step.want) {
			t.Fatalf("in line are %v, want %v", got, step.want)
		}
	}
	if w := r.parked("k")[0]; !w.Since.Equal(since) || w.Conflicts != 2 {
		t.Errorf("its move has changed what it has met: %+v, want since %v", w, since)
	}
	r.inLine("k", "e")
	for _, want := range []string{"c", "b", "a", "d", "e"} {
		if woken := r.Wake("k"); len(woken.Tasks) != 1 || woken.Tasks[0].ID != want {
			t.Errorf("woke %+v, want %s", woken, want)
		}
	}
}

func TestAReorderedWaiterKeepsItsPositionInAnotherConflict(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.inLine("k", "a", "b", "c")
	r.OK(r.inspector.PutFirst(t.Context(), "k", tasks[2]))
	r.OK(r.inspector.PutLast(t.Context(), "k", tasks[0]))
	for range 2 { // c and b are woken, and refused once more
		woken := r.Wake("k")
		r.Park(delayqueue.Task(woken.Tasks[0]), "k")
	}
	if got := r.Waiting("k"); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("in line are %v, want c, b, a", got)
	}
	for range 3 {
		r.Wake("k")
	}
	for _, task := range tasks {
		r.Park(task, "k")
	}
	if got := r.Waiting("k"); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("after all were woken and refused in line are %v, want c, b, a", got)
	}
}

// A crash between the two steps of a move leaves the line moved and the record not: calling again mends it.
func TestAReorderThatStoppedHalfwayIsCompletedByAnother(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.inLine("k", "a", "b")
	place := r.Client.ZScore(t.Context(), "railtoken:waiters:{k}", "7:defaulta").Val() - 1
	r.Client.ZAdd(t.Context(), "railtoken:waiters:{k}", redis.Z{Score: place, Member: "7:defaultb"})
	r.OK(r.inspector.PutFirst(t.Context(), "k", tasks[1]))
	if w := line.ParseWait(r.Client.HGet(t.Context(), "asynq:{default}:t:b", line.WaitField).Val()); w.Place != int64(place) {
		t.Errorf("its record says %d, the line %.0f", w.Place, place)
	}
}

func TestATaskThatDoesNotWaitIsNotReordered(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.inLine("k", "woken", "deleted", "archived", "waits")
	r.Wake("k")
	r.Remove(tasks[1])
	r.OK(r.Inspect.ArchiveTask("default", "archived"))
	other := r.parkIn("other", "another key", 0)
	before := r.Client.ZRangeWithScores(t.Context(), "railtoken:waiters:{k}", 0, -1).Val()
	for _, task := range append(tasks[:3], other, r.Delayed("never parked"), delayqueue.Task{},
		delayqueue.Task{Queue: "no", ID: "such"}) {
		for _, move := range []error{
			r.inspector.PutFirst(t.Context(), "k", task),
			r.inspector.PutLast(t.Context(), "k", task),
		} {
			if where, ok := errors.AsType[*delayqueue.NotWaitingError](move); !errors.Is(move,
				delayqueue.ErrNotWaiting) || !ok || where.Key != "k" {
				t.Errorf("%s: %v, want ErrNotWaiting", task, move)
			}
		}
		if n := r.Client.Exists(t.Context(), "asynq:{"+task.Queue+"}:t:"+task.ID).Val(); n != 0 && task == tasks[1] {
			t.Error("a move has made a task of nothing")
		}
	}
	if after := r.Client.ZRangeWithScores(t.Context(), "railtoken:waiters:{k}", 0, -1).Val(); !slices.Equal(before,
		after) {
		t.Errorf("the line was %v and is %v", before, after)
	}
}

func TestADroppedTaskIsGoneFromEverywhere(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	unique := []asynq.Option{asynq.Unique(time.Hour), asynq.Queue("default")}
	task := r.Delayed("a", unique...)
	r.Park(task, "k")
	next := r.inLine("k", "next")[0]
	if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), unique...); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Fatalf("the uniqueness lock does not hold: %v", err)
	}
	r.OK(r.inspector.Drop(t.Context(), task))
	if got := r.Waiting("k"); !slices.Equal(got, []string{"next"}) {
		t.Errorf("in line are %v", got)
	}
	if n, err := r.inspector.Count(t.Context()); err != nil || n != 1 {
		t.Errorf("%d are parked, %v", n, err)
	}
	if _, err := r.Inspect.GetTaskInfo("default", "a"); !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Errorf("asynq has it still: %v", err)
	}
	if left, err := r.Inspect.ListRetryTasks("default"); err != nil || len(left) != 1 || left[0].ID != "next" {
		t.Errorf("parked are %v, %v", left, err)
	}
	if _, err := r.Tasks.Enqueue(asynq.NewTask("test", nil), unique...); err != nil {
		t.Errorf("its uniqueness lock is left: %v", err)
	}
	if woken := r.Wake("k"); !slices.Equal(woken.Tasks, []line.Task{line.Task(next)}) {
		t.Errorf("woke %+v, want the one behind it", woken)
	}
	if err := r.inspector.Drop(t.Context(), task); !errors.Is(err, delayqueue.ErrNotWaiting) {
		t.Errorf("a second drop: %v, want ErrNotWaiting", err)
	}
}

func TestOnlyAParkedTaskIsDropped(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	woken := r.inLine("k", "woken")[0]
	r.Wake("k")
	tasks := r.inLine("k", "active", "run by hand", "archived", "deleted")
	r.Begin(tasks[0])
	r.OK(r.Inspect.RunTask("default", "run by hand"))
	r.OK(r.Inspect.ArchiveTask("default", "archived"))
	r.Remove(tasks[3])
	for task, want := range map[delayqueue.Task]delayqueue.State{
		woken: delayqueue.StatePending, tasks[0]: delayqueue.StateActive, tasks[1]: delayqueue.StatePending, tasks[2]: delayqueue.StateArchived,
		tasks[3]: delayqueue.StateGone, r.Delayed("never parked"): "scheduled", {
			Queue: "no",
			ID:    "such",
		}: delayqueue.StateGone,
	} {
		err := r.inspector.Drop(t.Context(), task)
		where, ok := errors.AsType[*delayqueue.NotWaitingError](err)
		if !errors.Is(err, delayqueue.ErrNotWaiting) || !ok || where.State != want {
			t.Errorf("%s: %v; want it to say %q", task, err, want)
		}
		there := r.Client.Exists(t.Context(), "asynq:{"+task.Queue+"}:t:"+task.ID).Val() == 1
		if there != (want != delayqueue.StateGone) {
			t.Errorf("%s: there is %v", task, there)
		}
	}
	if pending := r.Client.LRange(t.Context(), "asynq:{default}:pending", 0, -1).Val(); !slices.Contains(pending,
		"woken") {
		t.Errorf("pending are %v: the wake was swallowed", pending)
	}
}

// It would wait for ever otherwise: no server can run it.
func TestATaskThatHasLostItsMessageIsDropped(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	task := r.inLine("k", "damaged")[0]
	hash := "asynq:{default}:t:" + task.ID
	r.OK(r.Client.HDel(t.Context(), hash, "msg").Err())
	r.OK(r.inspector.Drop(t.Context(), task))
	if n := r.Client.Exists(t.Context(), hash, "asynq:{default}:retry", "railtoken:parked").Val(); n != 0 {
		t.Errorf("%d of its keys are left", n)
	}
}

// Every wake takes one of those that wait, and every task is either woken or dropped: else a wake was swallowed, or a
// task stranded.
func TestDropsAndReordersSwallowNoWake(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	const waiters, wakes = 200, 100
	var tasks []delayqueue.Task
	for i := range waiters {
		tasks = append(tasks, r.inLine("k", fmt.Sprint(i))...)
	}
	var mu sync.Mutex
	fate := map[delayqueue.Task][]string{}
	note := func(task delayqueue.Task, what string) {
		mu.Lock()
		defer mu.Unlock()
		fate[task] = append(fate[task], what)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range wakes / 2 {
				woken, err := r.queue.Wake(t.Context(), "k", delayqueue.WakeOptions{})
				if err != nil || len(woken.Tasks) == 0 && woken.Left > 0 {
					t.Errorf("woke %+v, %v", woken, err)
				}
				for _, task := range woken.Tasks {
					note(task, "woken")
				}
			}
		})
	}
	for part := range 2 {
		wg.Go(func() { // from the head of the line, where the wakes are
			for i := part; i < waiters/2; i += 2 {
				switch err := r.inspector.Drop(t.Context(), tasks[i]); {
				case err == nil:
					note(tasks[i], "dropped")
				case !errors.Is(err, delayqueue.ErrNotWaiting):
					t.Error(err)
				}
				for _, err := range []error{
					r.inspector.PutFirst(t.Context(), "k", tasks[waiters-1-i]),
					r.inspector.PutLast(t.Context(), "k", tasks[(i+7)%waiters]),
				} {
					if err != nil && !errors.Is(err, delayqueue.ErrNotWaiting) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for left := len(r.Waiting("k")); left > 0; left-- {
		for _, task := range r.Wake("k").Tasks {
			note(delayqueue.Task(task), "woken")
		}
	}
	dropped := 0
	for _, task := range tasks {
		got := fate[task]
		if len(got) != 1 {
			t.Errorf("%s was %v, want once woken or dropped", task, got)
			continue
		}
		there := r.Client.Exists(t.Context(), "asynq:{default}:t:"+task.ID).Val() == 1
		if there != (got[0] == "woken") {
			t.Errorf("%s was %s, and is there: %v", task, got[0], there)
		}
		if got[0] == "dropped" {
			dropped++
		}
	}
	if n := int(r.Client.LLen(t.Context(), "asynq:{default}:pending").Val()); n != waiters-dropped {
		t.Errorf("%d are pending, want %d", n, waiters-dropped)
	}
	t.Logf("%d of %d were dropped", dropped, waiters)
}
