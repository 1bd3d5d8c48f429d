package middleware

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
)

func TestTheSlotBudgetIsKept(t *testing.T) {
	t.Parallel()
	s := &slotBudget{Waiting: 3}
	var inside, over atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 1000 {
				if !s.take() {
					continue
				}
				if inside.Add(1) > 3 {
					over.Add(1)
				}
				inside.Add(-1)
				s.give()
			}
		})
	}
	wg.Wait()
	if over.Load() > 0 || s.InUse() != 0 {
		t.Errorf("over the budget %d times, %d left over; want neither", over.Load(), s.InUse())
	}
	if (&slotBudget{}).take() || (&slotBudget{Waiting: -1}).take() {
		t.Error("a budget of none has room")
	}
}

func TestARunOccupiesItsSlotUntilItEnds(t *testing.T) {
	t.Parallel()
	s := &slotBudget{Waiting: 2, Slots: 4}
	func() {
		defer func() { _ = recover() }()
		_ = s.Occupy(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			if running, _ := s.inUse(); running != 1 {
				t.Errorf("%d slots are occupied during a run", running)
			}
			panic("a handler's end")
		})).ProcessTask(t.Context(), nil)
	}()
	if running, _ := s.inUse(); running != 0 {
		t.Errorf("%d slots are occupied after it", running)
	}
}

func TestTheBudgetIsHalfOfTheSlots(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 9: 4} {
		server := &taskrun.Server{Slots: slots}
		if got := budgetOf(server, 0); got.Waiting != want || got.Slots != slots || budgetOf(server, 7) != got {
			t.Errorf("%d of %d slots may wait, want %d", got.Waiting, got.Slots, want)
		}
	}
	if got := budgetOf(&taskrun.Server{Slots: 8}, 3); got.Waiting != 3 {
		t.Errorf("%d may wait, want the 3 of the options", got.Waiting)
	}
	if got := budgetOf(&taskrun.Server{}, 0); got.Waiting != max(runtime.NumCPU()/2, 1) {
		t.Errorf("%d may wait of as many slots as there are CPUs", got.Waiting)
	}
}

func TestAServerWasFullForASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for slots, stays := range map[int]bool{1: true, 2: false} {
			s := &slotBudget{Slots: slots}
			if s.WasFull() {
				t.Error("a server without tasks was full")
			}
			_ = s.Occupy(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				if !s.WasFull() {
					t.Error("the first task may have waited for the start of its server")
				}
				time.Sleep(justFull)
				if s.WasFull() {
					t.Errorf("a task in one of %d slots has none waiting a second later", slots)
				}
				if slots == 1 { // the next one comes in the slot of one that has just ended
					s.running.Add(1)
					if !s.WasFull() {
						t.Error("two tasks in one slot do not fill it")
					}
					s.running.Add(-1)
				}
				return nil
			})).ProcessTask(t.Context(), nil)
			if s.WasFull() != stays {
				t.Errorf("after a task in one of %d slots: full %v, want %v", slots, s.WasFull(), stays)
			}
			time.Sleep(justFull - 1)
			if s.WasFull() != stays {
				t.Errorf("just before a second has passed: full %v, want %v", s.WasFull(), stays)
			}
			time.Sleep(time.Nanosecond)
			if s.WasFull() {
				t.Error("a second later it was full")
			}
		}
	})
}

func TestABudgetHasRoomUntilItIsTaken(t *testing.T) {
	t.Parallel()
	s := &slotBudget{Waiting: 2}
	for taken := range 3 {
		if got, want := s.hasRoom(), taken < 2; got != want || s.take() != want {
			t.Errorf("%d taken: room %v, want %v", taken, got, want)
		}
	}
	s.give()
	if _, waiting := s.inUse(); waiting != 1 || !s.hasRoom() {
		t.Errorf("%d wait after one has stopped", waiting)
	}
}
