package tasks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/railtoken/railtoken/bench/internal/tasks"
)

func TestRepeatGivesEachKeyItsTasksInTheSameShuffledOrderForTheSameSeed(t *testing.T) {
	t.Parallel()
	s := tasks.Repeat("K4", 4, 25, 20*time.Millisecond, 1)
	count := map[string]int{}
	sorted := true
	for i, task := range s.Tasks {
		count[task.Key]++
		if task.N != i || task.Work != 20*time.Millisecond || task.Queue == "" {
			t.Fatalf("task %d is %+v", i, task)
		}
		if i > 0 && i%4 != 0 && task.Key <= s.Tasks[i-1].Key {
			sorted = false
		}
	}
	if len(s.Tasks) != 100 || len(count) != 4 || s.Keys() != 4 || s.Bare != 4 {
		t.Errorf("%d tasks, %v, bare %d", len(s.Tasks), count, s.Bare)
	}
	for key, n := range count {
		if n != 25 {
			t.Errorf("key %s has %d tasks", key, n)
		}
	}
	if sorted {
		t.Error("the tasks are not shuffled")
	}
	if again := tasks.Repeat("K4", 4, 25, 20*time.Millisecond, 1); !slices.Equal(again.Tasks, s.Tasks) {
		t.Error("the same seed gives another order")
	}
	if other := tasks.Repeat("K4", 4, 25, 20*time.Millisecond, 2); slices.Equal(other.Tasks, s.Tasks) {
		t.Error("another seed gives the same order")
	}
}

func TestBareHasNoMoreSlotsThanTheOthers(t *testing.T) {
	t.Parallel()
	if got := tasks.Repeat("", 1000, 1, time.Millisecond, 1).Bare; got != tasks.Slots {
		t.Errorf("got %d", got)
	}
}

func TestIdealIsTheBusiestKeyOrAllSlots(t *testing.T) {
	t.Parallel()
	if got := tasks.Repeat("", 4, 250, 20*time.Millisecond, 1).Ideal(); got != 5*time.Second {
		t.Errorf("4 keys: %v", got)
	}
	if got := tasks.Repeat("", 64, 10, 20*time.Millisecond, 1).Ideal(); got != 400*time.Millisecond {
		t.Errorf("64 keys in 32 slots: %v", got)
	}
}

func TestDistinctIsAsManyTasksWithoutConflicts(t *testing.T) {
	t.Parallel()
	s := tasks.Repeat("", 2, 10, time.Millisecond, 1)
	own := s.Distinct()
	if own.Keys() != 20 || len(own.Tasks) != 20 || own.Tasks[7].Work != time.Millisecond || own.Tasks[7].N != 7 {
		t.Errorf("%d keys, %d tasks, %+v", own.Keys(), len(own.Tasks), own.Tasks[7])
	}
	if s.Keys() != 2 {
		t.Error("the original has changed")
	}
}

func TestHotTasksAreAsideAmongTheFirstHalfOfTheOthers(t *testing.T) {
	t.Parallel()
	for _, counts := range [][2]int{{2000, 200}, {40, 4}, {10, 10}, {7, 2}} {
		s := tasks.WithAHotKey("hotkey", "beside", counts[0], counts[1])
		hot, last := 0, 0
		for i, task := range s.Tasks {
			if task.Aside != (task.Key == "hot") || task.N != i {
				t.Fatalf("task %d is %+v", i, task)
			}
			if task.Aside {
				hot++
				last = i
			}
		}
		if hot != counts[1] || len(s.Tasks) != counts[0]+counts[1] || s.Keys() != counts[0]+1 {
			t.Errorf("%d others, %d hot: %d hot, %d in all", counts[0], counts[1], hot, len(s.Tasks))
		}
		if last-hot > counts[0]/2 {
			t.Errorf("%d others, %d hot: the last hot one is at %d", counts[0], counts[1], last)
		}
	}
	for i, task := range tasks.WithAHotKey("hot-ahead", "behind", 3, 5).Tasks {
		if task.Aside != (i < 5) {
			t.Errorf("behind hot ones, task %d is %+v", i, task)
		}
	}
	if alone := tasks.WithAHotKey("hotkey", "beside", 10, 0); len(alone.Tasks) != 10 || alone.Keys() != 10 {
		t.Errorf("%+v", alone.Tasks)
	}
}

func TestPairsHaveAHolderAndOneWhoComesLate(t *testing.T) {
	t.Parallel()
	s := tasks.Pairs(15)
	if len(s.Tasks) != 30 || s.Keys() != 15 || len(s.Tasks) > tasks.Slots {
		t.Fatalf("%d tasks, %d keys", len(s.Tasks), s.Keys())
	}
	for i := range 15 {
		holder, waiter := s.Tasks[i], s.Tasks[15+i]
		if holder.Key != waiter.Key || holder.After > 0 || waiter.After == 0 || holder.Work < 500*time.Millisecond || holder.Work > 1500*time.Millisecond {
			t.Errorf("%+v and %+v", holder, waiter)
		}
	}
}

func TestHandOffsHaveAWaiterWhileEachHolderWorks(t *testing.T) {
	t.Parallel()
	s := tasks.HandOffs(3)
	if len(s.Tasks) != 12 {
		t.Fatalf("%d tasks", len(s.Tasks))
	}
	for i := range 6 {
		holder, waiter := s.Tasks[i], s.Tasks[6+i]
		if waiter.Key != holder.Key || waiter.After <= holder.After || waiter.After >= holder.After+holder.Work {
			t.Errorf("%+v and %+v", holder, waiter)
		}
		if i > 0 && holder.After <= s.Tasks[i-1].After+s.Tasks[i-1].Work {
			t.Errorf("%+v comes before %+v has ended", holder, s.Tasks[i-1])
		}
	}
}
