package middleware

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/taskrun"
)

// slotBudget limits how many tasks of one server wait in their worker slots, so that hot keys cannot fill all slots. The
// middlewares of a server share one. With the zero value no task waits in a slot. It is safe for concurrent use.
type slotBudget struct {
	// Waiting is the maximum number of tasks that wait in their slots at a time; none if it is 0 or less.
	Waiting int

	// Slots is the Concurrency of the server; zero if it is not known.
	Slots int

	waiting atomic.Int64
	running atomic.Int64 // tasks that occupy a slot
	full    atomic.Int64 // when all slots were last occupied, in Unix ns; at first, when the first task began

	collecting atomic.Bool // while a task that was refused often collects its keys
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
