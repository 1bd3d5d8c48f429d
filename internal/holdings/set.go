package holdings

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Lease is the lease of a [Holding].
type Lease interface {
	// FenceOf returns the fencing token of a key, at once if ctx has ended.
	FenceOf(ctx context.Context, key string) (int64, error)
}

// Holding is what one run of a task, or one item of a task, holds. It may be in one [Set] at a time.
type Holding struct {
	Queue, ID, Type string
	Keys            []string
	Since           time.Time
	Item            bool
	Waited          bool // the task was refused a key before
	Lease           Lease
	Holder          Holder // nil if it cannot be superseded

	before, after *Holding // in the Set; nil at its ends
	in            *Set     // nil when it is in none
}

// Set has the holdings of the tasks of a server in memory, in the order in which they began. Adding and removing cost
// no allocation. The zero value is empty. It is safe for concurrent use, and a nil Set does nothing.
type Set struct {
	mu             sync.Mutex
	conflicts      int64 // since the beginning
	tally          tally
	oldest, newest *Holding
	keys           int
	slots          func() (running, waiting int)
}

// Add adds a holding that is in no Set.
func (s *Set) Add(h *Holding) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.in, h.before = s, s.newest
	if s.newest == nil {
		s.oldest = h
	} else {
		s.newest.after = h
	}
	s.newest = h
	s.keys += len(h.Keys)
	s.tally.held(h)
}

// Remove removes a holding, if it is in the Set.
func (s *Set) Remove(h *Holding) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.in == nil {
		return
	}
	if h.before == nil {
		s.oldest = h.after
	} else {
		h.before.after = h.after
	}
	if h.after == nil {
		s.newest = h.before
	} else {
		h.after.before = h.before
	}
	h.in, h.before, h.after = nil, nil, nil
	s.keys -= len(h.Keys)
}

// Of returns copies of the holdings that have one of the keys.
func (s *Set) Of(keys []string) (all []Holding) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := s.oldest; h != nil; h = h.after {
		if slices.ContainsFunc(h.Keys, func(key string) bool { return slices.Contains(keys, key) }) {
			all = append(all, *h)
		}
	}
	return all
}

// Conflict counts a task that was refused a key.
func (s *Set) Conflict(key string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conflicts++
	s.tally.refused(key)
}

// Woke counts tasks that were woken for a key.
func (s *Set) Woke(key string, tasks int) {
	if s == nil || tasks == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.woke(key, tasks)
}

// take returns what was counted since the last time.
func (s *Set) take() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tally
	s.tally = tally{}
	return t
}

// CountSlots sets how the slots in use are counted.
func (s *Set) CountSlots(count func() (running, waiting int)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = count
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// fill writes what is held at the moment into a report: the oldest most keys, and how many there are.
func (s *Set) fill(w *Worker, most int) {
	s.mu.Lock()
	w.Conflicts, w.Keys = s.conflicts, s.keys
	count := s.slots
	w.Held = make([]Held, 0, min(s.keys, most))
	leases := make([]Lease, 0, cap(w.Held))
	for h := s.oldest; h != nil && len(w.Held) < most; h = h.after {
		mode := ModeTask
		if h.Item {
			mode = ModeItem
		}
		for _, key := range h.Keys[:min(len(h.Keys), most-len(w.Held))] {
			w.Held = append(w.Held, Held{
				Key: []byte(key), Queue: h.Queue, ID: h.ID, Type: h.Type, Since: h.Since.UnixMilli(), Mode: mode,
			})
			leases = append(leases, h.Lease)
		}
	}
	s.mu.Unlock()
	if count != nil {
		w.Running, w.Waiting = count()
	}
	for i, lease := range leases { // 0 while the token is not certain, and for a lease that is over
		w.Held[i].Fence, _ = lease.FenceOf(ended, string(w.Held[i].Key))
	}
}
