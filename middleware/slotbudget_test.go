package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
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
