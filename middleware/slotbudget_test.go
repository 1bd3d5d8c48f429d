package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

func TestAStandbyTakesNoSlotThatIsWanted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		slots, taken int
		free         time.Duration
		refused      int
		want         bool
	}{
		"a slot is free":           {4, 3, 20 * time.Millisecond, 0, true},
		"it became free just now":  {4, 3, 19 * time.Millisecond, 0, false},
		"all are taken":            {4, 4, time.Hour, 0, false},
		"asynq has given runs up":  {4, 9, time.Hour, 0, false},
		"three slots":              {3, 1, time.Hour, 0, false},
		"the number is not known":  {0, 1, time.Hour, 0, false},
		"the first task has begun": {32, 1, 0, 0, false},
		"others want it":           {32, 20, 0, nearlyAll - 1, false},
		"none could use it":        {32, 20, 0, nearlyAll, true},
		"it is the last one":       {32, 32, 0, arrivals, false},
		"more than two are free":   {32, 29, 0, arrivals, true},
		"two are left to look":     {32, 30, 0, arrivals, false},
		"two have long been free":  {32, 30, time.Hour, arrivals, true},
		"the last of a few":        {15, 14, 0, arrivals, true},
	} {
		if got := spareSlot(tt.slots, tt.taken, tt.free, tt.refused); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestHandlersWithoutALockOccupySlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slotBudget{Waiting: 2, Slots: 4}
		spare := func(slots int, want bool) {
			t.Helper()
			if got := s.hasSpare(slots); got != want {
				t.Errorf("with %d more slots taken one is to spare: %t", slots, got)
			}
		}
		run := func(during func()) {
			defer func() { _ = recover() }()
			_ = s.Occupy(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				during()
				panic("a handler's end")
			})).ProcessTask(t.Context(), nil)
		}
		run(func() {
			spare(0, false) // it is the first task
			time.Sleep(freeFor)
			spare(2, true)
			spare(3, false)
			run(func() { run(func() { run(func() { spare(0, false) }) }) })
			spare(0, false)
			time.Sleep(freeFor)
			spare(2, true)
		})
		spare(3, true)
	})
}

func TestOnlyTheLastArrivalsTellWhetherSlotsAreWanted(t *testing.T) {
	t.Parallel()
	s := &slotBudget{Waiting: 16, Slots: 32}
	s.full.Store(time.Now().Add(time.Hour).UnixNano()) // no slot is free for long
	come := func(n int, refused, want bool) {
		t.Helper()
		for range n {
			s.came(refused)
		}
		if got := s.hasSpare(0); got != want {
			t.Errorf("after %d more, refused: %t, one is to spare: %t", n, refused, got)
		}
	}
	come(nearlyAll-1, true, false)
	come(1, true, true)
	come(100, true, true)
	come(arrivals-nearlyAll, false, true)
	come(1, false, false)
	come(nearlyAll-1, true, false)
	come(1, true, true)
}

func TestATaskKeepsThePlaceThatIsReservedForIt(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]bool{32: true, fewSlots: true, fewSlots - 1: false, 0: false} {
		s := &slotBudget{Waiting: 16, Slots: slots}
		s.running.Store(int64(slots))
		if got := s.mayStandBy(true); got != want {
			t.Errorf("of %d slots, all taken, one is kept: %t, want %t", slots, got, want)
		}
		if s.mayStandBy(false) {
			t.Errorf("of %d slots, all taken, one is free for a task without a place", slots)
		}
	}
}
