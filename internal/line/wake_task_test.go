package line_test

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
)

func TestWakeTaskWakesThisVeryWaiter(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		heard := make(chan line.Task, 10)
		queue := r.newQueue(r.Client, line.Options{Woken: func(t line.Task) { heard <- t }})
		a, b, c := r.Delayed("a"), r.Delayed("b"), r.Delayed("c")
		for _, task := range []line.Task{a, b, c} {
			r.Park(task, "k")
		}
		if _, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name)); err != nil {
			t.Fatal(err)
		}
		woken, err := queue.WakeTask(t.Context(), r.key("k"), b)
		if err != nil || !slices.Equal(woken.Tasks, []line.Task{b}) || woken.Left != 2 || woken.Pending {
			t.Errorf("woke %+v, %v; want %s, and two left", woken, err, b)
		}
		if heard := receive(t, heard); heard != b {
			t.Errorf("who listens heard of %s", heard)
		}
		if got := r.Waiting("k"); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("in line are %v", got)
		}
		r.indexed("after the wake", a, c)
		if head := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(); len(head) != 2 ||
			head[1] != b.ID {
			t.Errorf("pending are %v, want the woken task at the right end", head)
		}
	})
}

func TestWakeTaskDoesNothingWhenTheTaskDoesNotWaitForTheKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, never, next := r.Delayed("other"), r.Delayed("never"), r.Delayed("next")
		r.Park(other, "another")
		r.Park(next, "k")
		for _, task := range []line.Task{other, never, r.task("unheard of")} {
			if woken := r.wakeTask("k", task); len(woken.Tasks) != 0 || woken.Pending || woken.Left != 1 {
				t.Errorf("%s: woke %+v", task, woken)
			}
		}
		if state := r.State(other); state != asynq.TaskStateRetry {
			t.Errorf("the one in another line is %v", state)
		}
		r.indexed("after that", other, next)
	})
}

func TestWakeTaskRemovesATaskThatIsGone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		gone, next := r.Delayed("gone"), r.Delayed("next")
		r.Park(gone, "k")
		r.Park(next, "k")
		r.Remove(gone)
		if woken := r.wakeTask("k", gone); len(woken.Tasks) != 0 || woken.Pending || woken.Left != 1 {
			t.Errorf("woke %+v", woken)
		}
		if got := r.Waiting("k"); !slices.Equal(got, []string{"next"}) {
			t.Errorf("in line are %v", got)
		}
		r.indexed("after that", next)
	})
}

// A timer has brought a waiter back, or a wake has: then none may wait any more.
func TestTheFirstWaiterIsTheOneThatAReleaseWouldWake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.Delayed("a"), r.Delayed("b")
		r.Park(a, "k")
		r.Park(b, "k")
		for _, tt := range []struct {
			task line.Task
			want bool
		}{{a, true}, {b, false}, {r.task("gone"), false}} {
			if got := r.Engine.IsFirst(t.Context(), tt.task); got != tt.want {
				t.Errorf("%s is the first: %t", tt.task, got)
			}
		}
		r.Wake("k")
		r.Wake("k")
		if r.Engine.IsFirst(t.Context(), b) {
			t.Error("one that was woken is the first of no waiters")
		}
	})
}
