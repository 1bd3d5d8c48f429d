package middleware

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheSleeperBudgetIsKept(t *testing.T) {
	t.Parallel()
	s := NewSleepers(3)
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
	if NewSleepers(0).take() || NewSleepers(-1).take() {
		t.Error("a budget of none has room")
	}
}
