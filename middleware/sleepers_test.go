package middleware

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheSleeperBudgetIsKept(t *testing.T) {
	t.Parallel()
	s := NewSleepers(3)
	var inside, most, refused atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 1000 {
				if !s.take() {
					refused.Add(1)
					continue
				}
				n := inside.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				inside.Add(-1)
				s.give()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || s.InUse() != 0 {
		t.Errorf("%d at a time, %d left over; want at most 3 and none", most.Load(), s.InUse())
	}
	if NewSleepers(0).take() || NewSleepers(-1).take() {
		t.Error("a budget of none has room")
	}
}
