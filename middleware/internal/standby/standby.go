// Package standby counts the tasks of a server that wait in their slots for a key, and says how many parked tasks a
// release wakes.
//
// A task is on standby when it waits in its slot for a key that is held briefly: it bridges the time in which a woken
// task arrives. A release wakes parked tasks for the standby places that are free. Such a place is reserved until the
// task arrives, or for a short time.
package standby

import (
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
)

const (
	// idle is how long a key is remembered for which nothing happens.
	idle = time.Minute
	// few is how many keys, or early arrivals, are kept before the first sweep for those that can be forgotten.
	few = 256
)

// Keys is what a server knows of the keys that its tasks wait for. It decides nothing about who may have a key: when it
// is wrong, a task waits longer or runs once more than it had to. The zero value is ready. It is safe for use by many
// goroutines at the same time.
type Keys struct {
	mu       sync.Mutex
	keys     map[string]*key
	arrivals arrivals
	waking   int           // tasks that are being woken, of all keys
	pickup   time.Duration // from the wake of a task to its run, on average
	sweep    int           // how many keys there may be before the next sweep
}

// key is what a server knows of one key.
type key struct {
	waiting  int // tasks in their slots
	waking   int // tasks that are being woken
	begun    uint64
	reserved []reservation
	limit    int           // how many tasks may be on standby, by the last decision
	parked   int           // tasks in the delay queue, as far as this server knows
	absorbed bool          // the key was released without a wake, because a task waits here
	hold     time.Duration // how long the key is held, on average
	used     time.Time
}

// State is what is known of a key at a conflict.
type State struct {
	Standby      int           // tasks that wait in their slots, or have a place reserved
	Hold, Pickup time.Duration // averages; zero while unknown
}

// State returns what is known of a key.
func (k *Keys) State(name string) State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := State{Pickup: k.pickup}
	if known := k.keys[name]; known != nil {
		k.expire(known, time.Now())
		s.Standby, s.Hold = known.waiting+len(known.reserved), known.hold
	}
	return s
}

// Enter takes a standby place, one of limit, and reports whether there was one. A task with a reservation always gets
// one.
func (k *Keys) Enter(name string, limit int, reserved bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.key(name)
	known.limit = limit
	if !reserved && known.waiting+len(known.reserved) >= limit {
		return false
	}
	known.waiting++
	return true
}

// Leave gives a standby place back. acquired says that the task has the key now. When Leave returns true, a release
// woke no task because of this one, and the caller must wake one and report it to [Keys.Woke].
func (k *Keys) Leave(name string, acquired bool) (wake bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.key(name)
	known.waiting--
	if acquired {
		known.absorbed = false
		return false
	}
	if known.waiting > 0 || !known.absorbed {
		return false
	}
	known.absorbed = false
	k.beginWake(known, 1)
	return true
}

// Parked notes how many tasks are parked on a key, and how many may be on standby for it.
func (k *Keys) Parked(name string, parked, limit int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.key(name)
	known.parked, known.limit = parked, limit
}

// Release is how a key was released.
type Release struct {
	Held      time.Duration // how long the handler had it; zero when none ran
	HandedOff bool          // the next holder is a task of this process
	Notify    bool          // a refused task has asked to be told
}

// Released notes that a key was released, and returns how many tasks to wake. The caller reports them to [Keys.Woke].
// spare reports whether a slot is free for standby; it is called only when tasks wait for the key.
func (k *Keys) Released(name string, r Release, spare func() bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.keys[name]
	if known == nil {
		if !r.Notify {
			return 0
		}
		known = k.key(name)
	}
	known.hold = Average(known.hold, r.Held)
	if known.parked == 0 && !r.Notify {
		return 0
	}
	known.used = time.Now()
	k.expire(known, known.used)
	limit := 0
	if spare() {
		limit = known.limit
	}
	n := wakes(limit, known.waiting, known.waking+len(known.reserved), r.HandedOff)
	if !r.HandedOff && known.waiting > 0 {
		known.absorbed = true
	}
	k.beginWake(known, n)
	return n
}

// ReleasedInOrder notes that a key was released whose tasks run in order, and reports whether one of them may be on
// standby. It reserves no place: the order itself says which task is next.
func (k *Keys) ReleasedInOrder(name string, held time.Duration, spare func() bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.keys[name]
	if known == nil {
		return false
	}
	known.hold = Average(known.hold, held)
	return known.limit > 0 && spare()
}

// Woke notes the outcome of waking asked tasks, which left some parked, and reserves a place for each task that was
// woken and has not arrived yet. It reports whether a task of this server waits in its slot for the key.
func (k *Keys) Woke(name string, asked int, tasks []parking.Task, left int) (awaited bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.keys[name]; known != nil {
		awaited, known.parked = known.waiting > 0, left
		k.reserve(name, known, tasks)
	}
	k.endWake(name, asked)
	return awaited
}

// NotWoken notes that waking asked tasks has failed.
func (k *Keys) NotWoken(name string, asked int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endWake(name, asked)
}

// beginWake notes that so many tasks are being woken for a key. The caller holds the mutex.
func (k *Keys) beginWake(known *key, n int) {
	if known.waking == 0 {
		known.begun = k.arrivals.count
	}
	known.waking += n
	k.waking += n
}

// endWake notes that a wake has its answer. The caller holds the mutex.
func (k *Keys) endWake(name string, asked int) {
	if known := k.keys[name]; known != nil {
		known.waking -= asked
	}
	if k.waking -= asked; k.waking == 0 {
		clear(k.arrivals.early)
	}
}

// key returns what is known of a key, and makes room for it. The caller holds the mutex.
func (k *Keys) key(name string) *key {
	now := time.Now()
	known := k.keys[name]
	if known == nil {
		k.forget(now)
		known = &key{}
		k.keys[name] = known
	}
	known.used = now
	return known
}

// forget drops idle keys each time that the number of keys has doubled. The caller holds the mutex.
func (k *Keys) forget(now time.Time) {
	if k.keys == nil {
		k.keys, k.sweep = map[string]*key{}, few
	}
	if len(k.keys) < k.sweep {
		return
	}
	for name, known := range k.keys {
		k.expire(known, now)
		if known.waiting == 0 && known.waking == 0 && len(known.reserved) == 0 && now.Sub(known.used) > idle {
			delete(k.keys, name)
		}
	}
	k.sweep = max(2*len(k.keys), few)
}
