package middleware

import (
	"cmp"
	"context"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// fewSlots is the minimum number of slots of a server that has tasks on standby.
	fewSlots = 4
	// freeFor is how long a slot must have been free before it counts as one that no task needs. It is longer than a
	// server takes to fetch a pending task.
	freeFor = 20 * time.Millisecond
	// keptFree is the share of the slots, 1/16, that stays free of standby while nearly all tasks are refused, so
	// that the server can find tasks whose keys are free.
	keptFree = 16
	// arrivals is the number of recent arrivals for which the server remembers whether they were refused. If at least
	// nearlyAll of them were, the next arrivals are assumed to be refused, too.
	arrivals  = 16
	nearlyAll = 14
)

// slotBudget limits how many tasks of one server wait in their worker slots, so that hot keys cannot fill all slots. It
// also keeps what the server knows about the keys that its tasks wait for. The middlewares of a server share one.
// With the zero value no task waits in a slot. It is safe for concurrent use.
type slotBudget struct {
	// Waiting is the maximum number of tasks that wait in their slots at a time; none if it is 0 or less.
	Waiting int

	// Slots is the Concurrency of the server. A task is on standby only if another slot has been free for 20 ms, so that no
	// pending task needs it. While nearly all arriving tasks are refused, so that they could not use it, it is enough if a
	// sixteenth of the slots is free. A task that was woken because a slot was free may always be on standby. No task is on
	// standby if the server has fewer than four slots, or if Slots is zero because the number is not known.
	// In that case only [Wait] keeps tasks in their slots.
	Slots int

	waiting atomic.Int64
	running atomic.Int64  // tasks that occupy a slot
	full    atomic.Int64  // when all slots were last occupied, in Unix ns; at first, when the first task began
	refused atomic.Uint32 // one bit for each of the last arrivals, set if its first attempt was refused
	standby standby.Keys

	// collecting is set while a task that was refused often collects its keys, collectingOnStandby while one on standby
	// does.
	collecting, collectingOnStandby atomic.Bool
}

// budgetOf returns the budget of a server. waiting is Options.SlotBudget of its first middleware.
func budgetOf(on *taskrun.Server, waiting int) *slotBudget {
	on.Once.Do(func() {
		most := max(cmp.Or(on.Slots, runtime.NumCPU())/2, 1)
		on.Budget = &slotBudget{Waiting: cmp.Or(waiting, most), Slots: on.Slots}
	})
	return on.Budget.(*slotBudget) //nolint:errcheck,forcetypeassert // nobody else makes one
}

// Occupy returns a handler whose tasks count as occupying a slot while they run.
func (s *slotBudget) Occupy(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		s.running.Add(1)
		if s.full.Load() == 0 {
			s.full.CompareAndSwap(0, time.Now().UnixNano())
		}
		defer func() {
			if s.running.Add(-1)+1 >= int64(s.Slots) {
				s.full.Store(time.Now().UnixNano())
			}
		}()
		return next.ProcessTask(ctx, task)
	})
}

// justFull is how long after the end of an occupied slot tasks may still arrive that have waited for it.
const justFull = time.Second

// WasFull reports whether all slots are occupied, or were within the last second. A task that arrives then may have waited
// for its slot rather than for its wake.
func (s *slotBudget) WasFull() bool {
	return int(s.running.Load()) > s.Slots || time.Since(time.Unix(0, s.full.Load())) < justFull
}

// spareForNext reports whether a slot is free for standby at the release of a key, when the next holder takes the
// releaser's slot.
func (s *slotBudget) spareForNext() bool { return s.hasSpare(1) }

// hasSpare reports whether a task can be on standby without taking a slot from another task, if more slots than now
// will be occupied.
func (s *slotBudget) hasSpare(more int) bool {
	return spareSlot(s.Slots, int(s.running.Load())+more, time.Since(time.Unix(0, s.full.Load())),
		bits.OnesCount32(s.refused.Load()))
}

// mayStandBy reports whether a task that was refused may be on standby. One that was woken because a slot was free for
// standby may: otherwise it would have been woken in vain.
func (s *slotBudget) mayStandBy(woken bool) bool {
	return woken && s.Slots >= fewSlots || s.hasSpare(0)
}

// spareSlot reports whether one of the taken slots may be used for standby. Either another slot is free and has been for
// 20 ms, so that no pending task needs it. Or nearly all of the last arrivals were refused, so that the next one could not
// use it, and a few slots are left to look for others.
func spareSlot(slots, taken int, free time.Duration, refused int) bool {
	return slots >= fewSlots && taken < slots && (free >= freeFor || refused >= nearlyAll && taken+slots/keptFree < slots)
}

// came notes whether the first attempt of a task that was not woken was refused. If two tasks do this at the same
// moment, one of the notes is lost, which does no harm.
func (s *slotBudget) came(refused bool) {
	last := s.refused.Load() << 1 & (1<<arrivals - 1)
	if refused {
		last |= 1
	}
	s.refused.Store(last)
}

// hasRoom reports whether another task may wait now.
func (s *slotBudget) hasRoom() bool { return s.waiting.Load() < int64(s.Waiting) }

// take takes a share of the budget and reports whether there was one left.
func (s *slotBudget) take() bool {
	for {
		n := s.waiting.Load()
		if n >= int64(s.Waiting) {
			return false
		}
		if s.waiting.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *slotBudget) give() { s.waiting.Add(-1) }

// inUse returns how many tasks occupy a slot, and how many of these wait in it.
func (s *slotBudget) inUse() (running, waiting int) {
	return int(s.running.Load()), int(s.waiting.Load())
}
