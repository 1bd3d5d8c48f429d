package line_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/railtoken/railtoken/internal/line"
)

// gone lets a task end in one of the ways that leave its entry behind.
func (r *solo) gone(i int, t line.Task) {
	r.Helper()
	var err error
	switch i % 3 {
	case 0:
		err = r.Inspect.DeleteTask(t.Queue, t.ID)
	case 1:
		err = r.Inspect.ArchiveTask(t.Queue, t.ID)
	default: // as asynq's own script does it when a task with Retention has run
		err = r.Client.HSet(r.Context(), "asynq:{"+t.Queue+"}:t:"+t.ID, "state", "completed").Err()
	}
	if err != nil {
		r.Fatal(err)
	}
}

func TestTasksThatAreGoneDoNotHoldUpTheSequence(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 100, 101, 230} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			tasks := r.arrive("k", n+2)
			for i, task := range tasks[:n] {
				r.gone(i, task)
			}
			var calls atomic.Int32
			r.Client.AddHook(counting{&calls})
			if turn := r.turn(tasks[n+1], "k", line.JoinOptions{}); turn.Ahead != 1 || turn.First != tasks[n] {
				t.Errorf("the last stands at %+v, want %s before it", turn, tasks[n])
			}
			if most := int32(4 + 2*((n+99)/100)); calls.Load() > most {
				t.Errorf("%d calls to find that %d are gone, want %d at most", calls.Load(), n, most)
			}
			if turn := r.turn(tasks[n], "k", line.JoinOptions{}); turn.Ahead != 0 {
				t.Errorf("the first live one stands at %+v", turn)
			}
			if got := r.Client.ZCard(t.Context(), "railtoken:sequence:{k}").Val(); got != 2 {
				t.Errorf("%d are in line, want the 2 live ones", got)
			}
		})
	}
}

func TestRemoveReturnsLiveTasks(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 230} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			r := newSolo(t)
			tasks := r.arrive("k", n+4) // first, n that are gone, live, one that is gone, live
			for i, task := range tasks[1 : n+1] {
				r.gone(i, task)
			}
			r.gone(0, tasks[n+2])
			r.Park(tasks[n+1], "k")
			r.Park(tasks[n+3], "k")
			left := r.remove(tasks[0], "k")
			if want := []line.Task{tasks[n+1], tasks[n+3]}; !slices.Equal(left.Next, want) || left.Parked != 2 {
				t.Errorf("left %+v, want %v and 2 parked", left, want)
			}
			if left := r.remove(tasks[n+1], "k"); !slices.Equal(left.Next, []line.Task{tasks[n+1], tasks[n+3]}) {
				t.Errorf("a run that was given up has left %+v, want its task, which waits in another one, to be the first", left)
			}
			r.turn(tasks[n+1], "k", line.JoinOptions{Begins: true})
			if left := r.remove(tasks[n+1], "k"); !slices.Equal(left.Next, tasks[n+3:]) {
				t.Errorf("left %+v, want %v", left, tasks[n+3:])
			}
			r.gone(n, tasks[n+3])
			if left := r.remove(line.Task{Queue: "q", ID: "never in line"}, "k"); len(left.Next) != 0 {
				t.Errorf("left %+v, want nobody", left)
			}
			if got := r.Client.Exists(t.Context(), "railtoken:sequence:{k}").Val(); got != 0 {
				t.Error("the line is still there")
			}
		})
	}
}

func TestTheFrontHasLiveTasksOnly(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	if left := r.front("k"); len(left.Next) != 0 || left.Parked != 0 {
		t.Errorf("the front of no line is %+v", left)
	}
	tasks := r.arrive("k", 5)
	r.Park(tasks[3], "k")
	r.gone(0, tasks[0])
	r.gone(1, tasks[2])
	for range 2 {
		if left := r.front("k"); !slices.Equal(left.Next, []line.Task{tasks[1], tasks[3]}) || left.Parked != 1 {
			t.Errorf("the front is %+v, want %v and one that is parked", left, []line.Task{tasks[1], tasks[3]})
		}
	}
	if got := r.line("k"); len(got) != 3 {
		t.Errorf("in line are %v, want the three live ones", got)
	}
}

// A task that was parked may have come back by its own timer: then nobody has taken it out of those that wait.
func TestATaskThatLeavesItsSequenceWaitsNoLonger(t *testing.T) {
	t.Parallel()
	r := newSolo(t)
	tasks := r.arrive("k", 4)
	for _, task := range tasks {
		r.Park(task, "k")
	}
	r.gone(0, tasks[1])
	for _, task := range []line.Task{tasks[0], tasks[2], tasks[3]} {
		left := r.remove(task, "k")
		if left.Next[0] != tasks[0] {
			t.Fatalf("left %+v: a task that is parked has left, and it is the run of another that ended", left)
		}
	}
	begin := func(task line.Task) { r.turn(task, "k", line.JoinOptions{Begins: true}) }
	begin(tasks[0])
	left := r.remove(tasks[0], "k")
	if want := tasks[2:]; !slices.Equal(left.Next, want) || left.Parked != 2 {
		t.Errorf("left %+v, want %v and 2 parked", left, want)
	}
	for _, task := range tasks[:2] {
		if n := r.Client.ZScore(t.Context(), line.Names{}.Index(""), entry(task)); n.Err() == nil {
			t.Errorf("%s still counts among the parked tasks", task)
		}
	}
	if got := r.Client.ZCard(t.Context(), line.Names{}.Index("")).Val(); got != 2 {
		t.Errorf("%d tasks count as parked, want the 2 that are", got)
	}
	begin(tasks[2])
	if left := r.remove(tasks[2], "k"); left.Parked != 1 {
		t.Errorf("left %+v, want 1 parked", left)
	}
	begin(tasks[3])
	if left := r.remove(tasks[3], "k"); left.Parked != 0 || len(r.Waiting("k")) != 0 {
		t.Errorf("left %+v and %v wait, want nobody", left, r.Waiting("k"))
	}
}

// Its timer has brought it back, and it joins as its run begins.
func TestATaskThatBeginsIsParkedNoMore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.begun("first")
		r.joins(first, "k", 1)
		r.Park(first, "k")
		r.timer(first)
		at, err := r.Engine.Join(t.Context(), r.Begin(first), r.key("k"), line.JoinOptions{Begins: true})
		if err != nil || at.Ahead != 0 {
			t.Errorf("it joins at %+v, %v", at, err)
		}
		if waiting, index := r.Waiting("k"), r.parked(); len(waiting)+len(index) > 0 {
			t.Errorf("%v wait, %v are parked", waiting, index)
		}
	})
}
