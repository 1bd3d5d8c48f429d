package line_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

func TestWakesGoInTheOrderOfTheFirstConflicts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var want []string
		for i := range 20 {
			id := fmt.Sprintf("t%d", 97*i%20)
			r.Park(r.Delayed(id, asynq.Queue(fmt.Sprintf("%s:q%d", r.name, i%3))), "k")
			want = append(want, id)
		}
		r.Park(line.Task{Queue: r.name + ":q0", ID: want[0]}, "k") // a second conflict does not cost its place
		if got := r.Waiting("k"); !slices.Equal(got, want) {
			t.Fatalf("in line are %v, want %v", got, want)
		}
		for i, id := range want {
			woken := r.Wake("k")
			if woken.First().ID != id || woken.Left != len(want)-1-i {
				t.Fatalf("woke %+v, want %s with %d left", woken, id, len(want)-1-i)
			}
			if state := r.State(woken.First()); state != asynq.TaskStatePending {
				t.Errorf("%s is %v, want pending", id, state)
			}
		}
		if woken := r.Wake("k"); woken.First() != (line.Task{}) || woken.Pending || woken.Left != 0 {
			t.Errorf("an empty line woke %+v", woken)
		}
		if n := r.Client.Exists(t.Context(), r.registry("k")).Val(); n != 0 {
			t.Error("an empty line leaves a key behind")
		}
	})
}

func TestAWokenTaskIsAtTheHeadOfItsQueue(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 100 {
			if _, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name),
				asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		r.Park(r.Delayed("woken"), "k")
		r.Wake("k")
		order := make(chan string, 200)
		r.Serve(1, func(_ context.Context, id string) error {
			order <- id
			return nil
		})
		if first := receive(t, order); first != "woken" {
			t.Errorf("the first task to run is %s, want the woken one", first)
		}
	})
}

func TestWaitersThatAreGoneAreSkipped(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 250 { // more than one call of the script looks at
			task := r.Delayed(fmt.Sprintf("gone%d", i))
			r.Park(task, "k")
			var err error
			if i%2 == 0 {
				err = r.Inspect.DeleteTask(task.Queue, task.ID)
			} else {
				err = r.Inspect.ArchiveTask(task.Queue, task.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.Park(r.Delayed("here"), "k")
		if woken := r.Wake("k"); woken.First().ID != "here" || woken.Left != 0 {
			t.Errorf("woke %+v, want the one that is there", woken)
		}
	})
}

func TestAWaiterThatAnOperatorRanIsMovedToTheHead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.Delayed("run-by-hand")
		r.Park(task, "k")
		if _, err := r.Tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name)); err != nil {
			t.Fatal(err)
		}
		if err := r.Inspect.RunTask(task.Queue, task.ID); err != nil {
			t.Fatal(err)
		}
		if woken := r.Wake("k"); woken.First() != task {
			t.Errorf("woke %+v, want %s", woken, task)
		}
		if head := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(); len(head) != 2 ||
			head[1] != task.ID {
			t.Errorf("pending are %v, want the woken task once, at the right end", head)
		}
	})
}

func TestTheLeaverIsNotWoken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		leaver, next := r.Delayed("leaver"), r.Delayed("next")
		r.Park(leaver, "k")
		r.Park(next, "k")
		r.Begin(leaver)
		woken, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Leaver: leaver})
		if err != nil || woken.First() != next {
			t.Errorf("woke %+v, %v; want %s", woken, err, next)
		}
		if got := r.Waiting("k"); len(got) != 0 {
			t.Errorf("%v are still in line", got)
		}
	})
}

func TestAGivenUpRunLeavesTheNextRunAmongTheWaiters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.Delayed("a") // its next run is parked; the old one gives its key back
		r.Park(task, "k")
		woken, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Leaver: task})
		if err != nil || woken.First() != task {
			t.Errorf("woke %+v, %v; want the task's next run", woken, err)
		}
	})
}

func TestATaskThatEndsWithoutItsKeyPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.Delayed("a"), r.Delayed("b")
		r.Park(a, "k")
		r.Park(b, "k")
		r.Wake("k")
		r.Begin(a)
		if err := r.Engine.ForwardWake(t.Context(), a, true); err != nil {
			t.Fatal(err)
		}
		if state := r.State(b); state != asynq.TaskStatePending {
			t.Errorf("b is %v: the wake was swallowed", state)
		}
		if err := r.Engine.ForwardWake(t.Context(), r.Delayed("never parked"), true); err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrentWakesWakeEachWaiterOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const waiters = 200
		for i := range waiters {
			r.Park(r.Delayed(fmt.Sprint(i)), "k")
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range waiters / 8 {
					woken, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					seen[woken.First().ID]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, n := range seen {
			if n != 1 || id == "" {
				t.Errorf("%q was woken %d times", id, n)
			}
		}
		if n := r.Client.LLen(t.Context(), "asynq:{"+r.name+"}:pending").Val(); n != waiters {
			t.Errorf("%d tasks are pending, want %d", n, waiters)
		}
	})
}

func TestSeveralThatAreWokenKeepTheirOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b", "c", "d"} {
			r.Park(r.Delayed(id), "k")
		}
		woken, err := r.Engine.Wake(t.Context(), r.key("k"), line.WakeOptions{Most: 3})
		if want := []line.Task{r.task("a"), r.task("b"), r.task("c")}; err != nil ||
			!slices.Equal(woken.Tasks, want) {
			t.Errorf("woke %+v, %v; want %v", woken, err, want)
		}
		pending := r.Client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val()
		if !slices.Equal(pending, []string{"c", "b", "a"}) {
			t.Errorf("pending are %v, want the first at the right end", pending)
		}
	})
}

// Whatever else is found in a registry, it holds up nobody.
func TestForeignMembersAreSkipped(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, foreign := range []string{"", "x", "3:", "99:short", "-1:x", "a:b:c"} {
			if err := r.Client.ZAdd(t.Context(), r.registry("k"),
				redis.Z{Score: 1, Member: foreign}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		task := r.Delayed("a")
		r.Park(task, "k")
		if woken := r.Wake("k"); woken.First() != task || woken.Left != 0 {
			t.Errorf("woke %+v, want %s and nobody left", woken, task)
		}
	})
}
