package middleware

import (
	"context"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware/internal/standby"
)

const (
	// fewSlots is how many slots a server needs at least for a task to be on standby in one of them.
	fewSlots = 4
	// freeFor is how long a slot must have been free to count as one that no task wants: longer than it takes a server
	// to fetch a task that is pending.
	freeFor = 20 * time.Millisecond
	// arrivals is of how many tasks that came of late the server knows whether they were refused, and nearlyAll how
	// many of them must have been for the next ones to count as tasks that cannot run either.
	arrivals  = 16
	nearlyAll = 14
)

// SlotBudget bounds the tasks of one server that wait in their worker slots, so that hot keys cannot fill all of them.
// It also keeps what the server knows of the keys that its tasks wait for. Share one among the middlewares of a server;
// it must not be copied after first use. The zero value lets no task wait. It is safe for use by many goroutines at the
// same time.
type SlotBudget struct {
	// Waiting is how many tasks may wait in their slots at a time; none when it is 0 or less.
	Waiting int

	// Slots is the Concurrency of the server. A task is on standby only while another slot is free, and has been for 20
	// ms, so that no pending task wants it, or nearly all tasks that arrive are refused, so that they could not use it.
	// With fewer than four slots, and when Slots is zero because the number is not known, no task is on standby: then
	// only [Wait] keeps tasks in their slots.
	Slots int

	waiting    atomic.Int64
	running    atomic.Int64  // tasks that have a slot
	full       atomic.Int64  // when all slots were last taken, in ns since 1970; at first, when the first task began
	refused    atomic.Uint32 // of the last arrivals: a bit for each, set when its first attempt met another holder
	standby    standby.Keys
	collecting atomic.Bool // a task of several keys takes them one after another
}

// Occupy returns a handler whose tasks count as taking a slot while they run. Use it for the handlers of the server
// that have no [Lock]; the others count without it.
func (s *SlotBudget) Occupy(next asynq.Handler) asynq.Handler {
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

// spareForNext reports whether a slot is free for standby when a key is released: the next holder takes the releaser's
// slot.
func (s *SlotBudget) spareForNext() bool { return s.hasSpare(1) }

// hasSpare reports whether a task on standby takes its slot from no other, when so many more slots than now are taken.
func (s *SlotBudget) hasSpare(more int) bool {
	return spareSlot(s.Slots, int(s.running.Load())+more, time.Since(time.Unix(0, s.full.Load())),
		bits.OnesCount32(s.refused.Load()))
}

// spareSlot reports whether one of the taken slots may be that of a task on standby: another is free, and for so long
// that no pending task wants it, or so many of the last arrivals were refused that the next one could not use it.
func spareSlot(slots, taken int, free time.Duration, refused int) bool {
	return slots >= fewSlots && taken < slots && (free >= freeFor || refused >= nearlyAll)
}

// came notes the first attempt of a task that was not woken. When two tasks do so at the same moment, one of them is
// lost, which does not matter.
func (s *SlotBudget) came(refused bool) {
	last := s.refused.Load() << 1 & (1<<arrivals - 1)
	if refused {
		last |= 1
	}
	s.refused.Store(last)
}

// hasRoom reports whether another task may wait at this moment.
func (s *SlotBudget) hasRoom() bool { return s.waiting.Load() < int64(s.Waiting) }

// take reports whether there was room, and takes it.
func (s *SlotBudget) take() bool {
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

func (s *SlotBudget) give() { s.waiting.Add(-1) }
