package delayqueue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
)

func TestWakesGoInTheOrderOfTheFirstConflicts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var want []string
		for i := range 20 {
			id := fmt.Sprintf("t%d", 97*i%20)
			r.park(r.delayed(id, asynq.Queue(fmt.Sprintf("%s:q%d", r.name, i%3))), "k")
			want = append(want, id)
		}
		r.park(delayqueue.Task{Queue: r.name + ":q0", ID: want[0]}, "k") // a second conflict does not cost its place
		if got := r.waiting("k"); !slices.Equal(got, want) {
			t.Fatalf("in line are %v, want %v", got, want)
		}
		for i, id := range want {
			woken := r.wake("k")
			if woken.First().ID != id || woken.Left != len(want)-1-i {
				t.Fatalf("woke %+v, want %s with %d left", woken, id, len(want)-1-i)
			}
			if state := r.state(woken.First()); state != asynq.TaskStatePending {
				t.Errorf("%s is %v, want pending", id, state)
			}
		}
		if woken := r.wake("k"); woken.First() != (delayqueue.Task{}) || woken.Pending || woken.Left != 0 {
			t.Errorf("an empty line woke %+v", woken)
		}
		if n := r.client.Exists(t.Context(), r.registry("k")).Val(); n != 0 {
			t.Error("an empty line leaves a key behind")
		}
	})
}

func TestAWokenTaskIsAtTheHeadOfItsQueue(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 100 {
			if _, err := r.tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name), asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		r.park(r.delayed("woken"), "k")
		r.wake("k")
		order := make(chan string, 200)
		r.serve(1, func(_ context.Context, id string) error {
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
			task := r.delayed(fmt.Sprintf("gone%d", i))
			r.park(task, "k")
			var err error
			if i%2 == 0 {
				err = r.inspect.DeleteTask(task.Queue, task.ID)
			} else {
				err = r.inspect.ArchiveTask(task.Queue, task.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.park(r.delayed("here"), "k")
		if woken := r.wake("k"); woken.First().ID != "here" || woken.Left != 0 {
			t.Errorf("woke %+v, want the one that is there", woken)
		}
	})
}

func TestAWaiterThatAnOperatorRanIsMovedToTheHead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("run-by-hand")
		r.park(task, "k")
		if _, err := r.tasks.Enqueue(asynq.NewTask("backlog", nil), asynq.Queue(r.name)); err != nil {
			t.Fatal(err)
		}
		if err := r.inspect.RunTask(task.Queue, task.ID); err != nil {
			t.Fatal(err)
		}
		if woken := r.wake("k"); woken.First() != task {
			t.Errorf("woke %+v, want %s", woken, task)
		}
		if head := r.client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val(); len(head) != 2 || head[1] != task.ID {
			t.Errorf("pending are %v, want the woken task once, at the right end", head)
		}
	})
}

func TestTheLeaverIsNotWoken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		leaver, next := r.delayed("leaver"), r.delayed("next")
		r.park(leaver, "k")
		r.park(next, "k")
		r.begin(leaver)
		woken, err := r.queue.Wake(t.Context(), r.key("k"), delayqueue.WakeOptions{Leaver: leaver})
		if err != nil || woken.First() != next {
			t.Errorf("woke %+v, %v; want %s", woken, err, next)
		}
		if got := r.waiting("k"); len(got) != 0 {
			t.Errorf("%v are still in line", got)
		}
	})
}

func TestARunThatAsynqGaveUpDoesNotTakeTheNextRunOutOfTheLine(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		task := r.delayed("a") // its next run is parked; the old one gives its key back
		r.park(task, "k")
		woken, err := r.queue.Wake(t.Context(), r.key("k"), delayqueue.WakeOptions{Leaver: task})
		if err != nil || woken.First() != task {
			t.Errorf("woke %+v, %v; want the task's next run", woken, err)
		}
	})
}

func TestATaskThatEndsWithoutItsKeyPassesItsWakeOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		a, b := r.delayed("a"), r.delayed("b")
		r.park(a, "k")
		r.park(b, "k")
		r.wake("k")
		r.begin(a)
		if err := r.queue.ForwardWake(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if state := r.state(b); state != asynq.TaskStatePending {
			t.Errorf("b is %v: the wake was swallowed", state)
		}
		if err := r.queue.ForwardWake(t.Context(), r.delayed("never parked"), nil); err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrentWakesWakeEachWaiterOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const waiters = 200
		for i := range waiters {
			r.park(r.delayed(fmt.Sprint(i)), "k")
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range waiters / 8 {
					woken, err := r.queue.Wake(t.Context(), r.key("k"), delayqueue.WakeOptions{})
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
		if n := r.client.LLen(t.Context(), "asynq:{"+r.name+"}:pending").Val(); n != waiters {
			t.Errorf("%d tasks are pending, want %d", n, waiters)
		}
	})
}

func TestSeveralThatAreWokenKeepTheirOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b", "c", "d"} {
			r.park(r.delayed(id), "k")
		}
		woken, err := r.queue.Wake(t.Context(), r.key("k"), delayqueue.WakeOptions{Most: 3})
		if want := []delayqueue.Task{r.task("a"), r.task("b"), r.task("c")}; err != nil || !slices.Equal(woken.Tasks, want) {
			t.Errorf("woke %+v, %v; want %v", woken, err, want)
		}
		pending := r.client.LRange(t.Context(), "asynq:{"+r.name+"}:pending", 0, -1).Val()
		if !slices.Equal(pending, []string{"c", "b", "a"}) {
			t.Errorf("pending are %v, want the first at the right end", pending)
		}
	})
}

// Whatever else is found in a registry, it holds up nobody.
func TestWhatIsNoEntryIsPassedOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, foreign := range []string{"", "x", "3:", "99:short", "-1:x", "a:b:c"} {
			if err := r.client.ZAdd(t.Context(), r.registry("k"), redis.Z{Score: 1, Member: foreign}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		task := r.delayed("a")
		r.park(task, "k")
		if woken := r.wake("k"); woken.First() != task || woken.Left != 0 {
			t.Errorf("woke %+v, want %s and nobody left", woken, task)
		}
	})
}
