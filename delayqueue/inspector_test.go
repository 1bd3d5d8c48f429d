package delayqueue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
)

// index notes a task among all that are parked, as a crash may leave it behind.
func (r *solo) index(t delayqueue.Task) {
	r.Helper()
	entry := fmt.Sprintf("%d:%s%s", len(t.Queue), t.Queue, t.ID)
	if err := r.Client.ZAdd(r.Context(), "railtoken:parked",
		redis.Z{Score: float64(time.Now().UnixMicro()), Member: entry}).Err(); err != nil {
		r.Fatal(err)
	}
}

// parkIn parks a new task for a key, first refused some time ago.
func (r *solo) parkIn(id, key string, ago time.Duration) delayqueue.Task {
	r.Helper()
	task := r.Delayed(id)
	w := line.Wait{Conflict: line.Conflict{Count: 1, First: time.Now().Add(-ago)}}
	w.Place = w.First.UnixMicro()
	r.OK(r.Client.HSet(r.Context(), hash(task), linetest.Record(w)...).Err())
	r.Park(task, key)
	return task
}

// longest returns the IDs of the n tasks that wait longest.
func (r *solo) longest(n int) []string {
	r.Helper()
	parked, err := r.inspector.Longest(r.Context(), n)
	if err != nil {
		r.Fatal(err)
	}
	ids := []string{}
	for _, w := range parked {
		ids = append(ids, w.Task.ID)
	}
	return ids
}

func TestLongestListsTheLongestWaitsOverAllKeys(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.parkIn("young", "one", time.Minute)
	r.parkIn("oldest", "two", time.Hour)
	r.parkIn("old", "one", 30*time.Minute)
	parked, err := r.inspector.Longest(t.Context(), 2)
	if err != nil || len(parked) != 2 {
		t.Fatalf("%+v, %v", parked, err)
	}
	if w := parked[0]; w.Task.ID != "oldest" || w.Key != "two" || w.Position != 1 || w.Conflicts != 2 ||
		w.State != delayqueue.StateRetry || w.Next.IsZero() {
		t.Errorf("the first is %+v", w)
	}
	if w := parked[1]; w.Task.ID != "old" || w.Key != "one" || w.Position != 1 || time.Since(w.Since) < 30*time.Minute {
		t.Errorf("the second is %+v", w)
	}
	if got := r.longest(10); !slices.Equal(got, []string{"oldest", "old", "young"}) {
		t.Errorf("all are %v", got)
	}
	if got := r.longest(-1); len(got) != 0 {
		t.Errorf("asked for -1: %v", got)
	}
	if n, err := r.inspector.Count(t.Context()); err != nil || n != 3 {
		t.Errorf("%d wait, %v", n, err)
	}
}

func TestLongestLeavesOutTasksThatDoNotWait(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	woken, deleted, archived, foreign := r.parkIn("woken", "one", time.Minute), r.parkIn("deleted", "two",
		0), r.parkIn("archived", "two", 0), r.parkIn("foreign", "three", 0)
	r.Wake("one")
	r.Remove(deleted)
	if err := r.Inspect.ArchiveTask(archived.Queue, archived.ID); err != nil {
		t.Fatal(err)
	}
	r.Client.HSet(t.Context(), "asynq:{default}:t:foreign", line.WaitField, "the record of somebody else")
	r.index(r.Delayed("never parked"))
	for _, task := range []delayqueue.Task{woken, foreign} {
		r.index(task) // however the index is kept: an entry may outlast its task
	}
	r.Client.ZAdd(t.Context(), "railtoken:parked", redis.Z{Member: "foreign"})
	here := r.parkIn("here", "two", 0)
	if got := r.longest(10); !slices.Equal(got, []string{here.ID}) {
		t.Errorf("%v wait, want the one that is in line", got)
	}
}

func TestLongestAndKeysOfNothing(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	parked, err1 := r.inspector.Longest(t.Context(), 10)
	awaited, err2 := r.inspector.Keys(t.Context(), 10)
	n, err3 := r.inspector.Count(t.Context())
	if err := errors.Join(err1, err2, err3); err != nil || len(parked) != 0 || len(awaited) != 0 || n != 0 {
		t.Errorf("%v, %v, %d, %v", parked, awaited, n, err)
	}
}

func TestKeysTellsWhatMostTasksWaitFor(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for i, key := range []string{"b", "long {line}", "a", "long {line}", "gone", "long {line}"} {
		r.parkIn(fmt.Sprint(i), key, 0)
	}
	r.Wake("gone")
	r.index(delayqueue.Task{Queue: "default", ID: "4"})
	want := []delayqueue.AwaitedKey{{Key: "long {line}", Waiters: 3}, {Key: "a", Waiters: 1}, {Key: "b", Waiters: 1}}
	for _, n := range []int{10, 3, 1, 0, -1} {
		got, err := r.inspector.Keys(t.Context(), n)
		if err != nil || !slices.Equal(got, want[:max(min(n, 3), 0)]) {
			t.Errorf("asked for %d: %+v, %v", n, got, err)
		}
	}
}

func TestFindTellsWhatATaskWaitsFor(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	r.parkIn("before", "k", time.Hour)
	task := r.parkIn("a", "k", time.Minute)
	w, err := r.inspector.Find(t.Context(), task)
	if err != nil || w.Task != task || w.Key != "k" || w.Position != 2 || w.Conflicts != 2 ||
		w.State != delayqueue.StateRetry || w.Next.IsZero() {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestFindTellsWhereATaskIsThatDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	woken, running, deleted, archived := r.parkIn("woken", "k", 0), r.parkIn("running", "k", 0), r.parkIn("deleted",
		"k", 0), r.parkIn("archived", "k", 0)
	r.Wake("k")
	r.Wake("k")
	r.Begin(running)
	r.Remove(deleted)
	if err := r.Inspect.ArchiveTask(archived.Queue, archived.ID); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[delayqueue.Task]delayqueue.State{
		woken: delayqueue.StatePending, running: delayqueue.StateActive, deleted: delayqueue.StateGone, archived: delayqueue.StateArchived,
		r.Delayed("never parked"): "scheduled", {}: delayqueue.StateGone, {
			Queue: "no such",
			ID:    "x",
		}: delayqueue.StateGone,
	} {
		w, err := r.inspector.Find(t.Context(), task)
		where, ok := errors.AsType[*delayqueue.NotWaitingError](err)
		if !errors.Is(err, delayqueue.ErrNotWaiting) || !ok || where.State != want || where.Task != task ||
			w.Position != 0 || w.Key != "" {
			t.Errorf("%s: %+v, %v; want state %q", task, w, err, want)
		}
	}
	if n := r.Client.SIsMember(t.Context(), "asynq:queues", "no such").Val(); n {
		t.Error("looking for a task has made a queue")
	}
}
