package delayqueue_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

// parked returns the tasks that wait for a key, as they are seen.
func (r *solo) parked(key string) []delayqueue.Waiter {
	r.Helper()
	waiters, err := r.inspector.Waiters(r.Context(), key, 1000)
	if err != nil {
		r.Fatal(err)
	}
	return waiters
}

func TestWaitersDescribeEachWait(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	a, b := r.Delayed("a"), r.Delayed("b", asynq.Queue("other"))
	first := r.Park(a, "k")
	r.Park(a, "k")
	second := r.Park(b, "k")
	due := time.Unix(int64(r.Client.ZScore(t.Context(), "asynq:{default}:retry", "a").Val()), 0)

	got := r.parked("k")
	if len(got) != 2 {
		t.Fatalf("%d wait: %+v", len(got), got)
	}
	if w := got[0]; w.Task != a || w.Key != "k" || w.Position != 1 || w.Conflicts != 2 || !w.Since.Equal(first.First) ||
		w.State != delayqueue.StateRetry || !w.Next.Equal(due) {
		t.Errorf("the first is %+v; want %s with 2 conflicts since %v, due %v", w, a, first.First, due)
	}
	if w := got[1]; w.Task != b || w.Position != 2 || w.Conflicts != 1 || !w.Since.Equal(second.First) {
		t.Errorf("the second is %+v", w)
	}
	if head, err := r.inspector.Waiters(t.Context(), "k", 1); err != nil || len(head) != 1 || head[0].Task != a {
		t.Errorf("asked for one: %+v, %v", head, err)
	}
	for _, n := range []int{0, -1} {
		if none, err := r.inspector.Waiters(t.Context(), "k", n); err != nil || len(none) != 0 {
			t.Errorf("asked for %d: %+v, %v", n, none, err)
		}
	}
	if all, err := r.inspector.Waiters(t.Context(), "k", math.MaxInt); err != nil || len(all) != 2 {
		t.Errorf("asked for all: %+v, %v", all, err)
	}
}

func TestWaitersHaveTheStateOfEachTask(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	for _, id := range []string{"retry", "active", "run by hand", "archived", "deleted"} {
		r.Park(r.Delayed(id), "k")
	}
	due := time.Now().Add(time.Minute).Truncate(time.Second)
	r.Client.ZAdd(t.Context(), "asynq:{default}:retry", redis.Z{Score: float64(due.Unix()), Member: "retry"})
	r.Begin(delayqueue.Task{Queue: "default", ID: "active"})
	for _, err := range []error{
		r.Inspect.RunTask("default", "run by hand"), r.Inspect.ArchiveTask("default",
			"archived"), r.Inspect.DeleteTask("default", "deleted"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []delayqueue.State{
		delayqueue.StateRetry, delayqueue.StateActive, delayqueue.StatePending,
		delayqueue.StateArchived, delayqueue.StateGone,
	}
	got := r.parked("k")
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range got {
		if w.State != want[i] || w.Position != i+1 || w.Since.IsZero() {
			t.Errorf("%d: %+v, want state %q", i+1, w, want[i])
		}
		if timer := i == 0; w.Next.Equal(due) != timer || w.Next.IsZero() == timer {
			t.Errorf("%d: next at %v, due %v", i+1, w.Next, due)
		}
	}
}

func TestWaitersSkipForeignMembers(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	ctx := t.Context()
	foreign := []redis.Z{
		{Score: 1, Member: "foreign"},
		{Score: 2, Member: "99:short"},
		{Score: 3, Member: ""},
		{Score: math.Inf(-1), Member: "-1:x"},
	}
	r.Client.ZAdd(ctx, "railtoken:waiters:{k}", foreign...)
	task := r.Delayed("a")
	r.Park(task, "k")
	r.Park(r.Delayed("b"), "k")
	r.Client.HSet(ctx, "asynq:{default}:t:b", "railtoken:wait", "0 0 0 many long ago 0 k")
	got := r.parked("k")
	if len(got) != 2 || got[0].Task != task || got[0].Position != len(foreign)+1 || got[1].Conflicts != 0 || got[1].Since.IsZero() {
		t.Errorf("%+v", got)
	}
	if n := r.Client.ZCard(ctx, "railtoken:waiters:{k}").Val(); n != int64(len(foreign))+2 {
		t.Errorf("looking has left %d entries", n)
	}
	r.Client.Set(ctx, "railtoken:waiters:{string}", "x", 0)
	if got, err := r.inspector.Waiters(ctx, "string", 10); err == nil {
		t.Errorf("a key of another kind gives %+v and no error", got)
	}
}

func TestManyWaitersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	const n = 1201 // some batches
	for i := range n {
		r.Client.ZAdd(t.Context(), "railtoken:waiters:{k}",
			redis.Z{Score: float64(i), Member: fmt.Sprintf("7:default%d", i)})
	}
	r.Park(r.Delayed("last"), "k")
	got, err := r.inspector.Waiters(t.Context(), "k", n+1)
	if err != nil || len(got) != n+1 {
		t.Fatalf("%d, %v", len(got), err)
	}
	for i, w := range got[:n] {
		if w.Task.ID != fmt.Sprint(i) || w.State != delayqueue.StateGone || w.Position != i+1 {
			t.Fatalf("%d: %+v", i, w)
		}
	}
	if w := got[n]; w.Task.ID != "last" || w.Conflicts != 1 || w.Next.IsZero() {
		t.Errorf("the last is %+v", w)
	}
}
