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
		if task.N != i || task.Work != 20*time.Millisecond || task.Type == "" || task.Queue == "" {
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
