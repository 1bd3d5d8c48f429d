// Package standby counts the tasks of a server that wait in their slots for a key, and decides how many parked tasks a
// release wakes.
//
// A task is on standby when it waits in its slot for a key that is held only briefly. This bridges the time until a
// woken task arrives. There is a limited number of standby places for each key. A release wakes as many parked tasks as
// there are free places, and each place is reserved until its task arrives, or for a short time.
package standby

import (
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/line"
)

const (
	// idle is the time after which a key that is not used is forgotten.
	idle = time.Minute
	// few is the number of keys, or of early arrivals, before the first sweep for those that can be forgotten.
	few = 256
	// mostPlaces limits how many tasks a release wakes for standby, because one script wakes them all.
	mostPlaces = 99
)

// Keys is what a server knows about the keys that its tasks wait for. It does not decide which task gets a key: if it
// is wrong, a task only waits longer or runs once more than necessary. The zero value is ready for use. It is safe for
// concurrent use.
type Keys struct {
	mu       sync.Mutex
	keys     map[string]*key
	arrivals arrivals
	waking   int           // how many tasks are being woken, for all keys
	pickup   time.Duration // average time from the wake of a task to its run
	sweep    int           // the number of keys that triggers the next sweep
}

// key is what a server knows about one key.
type key struct {
	waiting  int    // how many tasks wait in their slots
	wanted   int    // how many tasks wait in their slots that need the key, for it or for another one
	waking   int    // how many tasks are being woken
	begun    uint64 // the number of early arrivals when these wakes began
	reserved []reservation
	limit    int           // the number of standby places, by the last decision
	parked   int           // how many tasks are parked, as far as this server knows
	absorbed bool          // a release woke no task, because one waits here
	spare    bool          // a slot was free for standby at the last release
	hold     time.Duration // how long the key is held on average
	used     time.Time
}

// State is what is known about a key at a conflict.
type State struct {
	Standby      int           // standby places that are taken or reserved
	Hold, Pickup time.Duration // averages; zero while unknown
}

// State returns what is known about a key.
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

// Enter takes one of limit standby places, and reports whether one was free. A task with a reservation always gets a
// place.
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

// Leave frees a standby place. acquired says that the task now has the key. If Leave returns true, a release woke no
// task because of this one; the caller must then wake one task and report it to [Keys.Woke].
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
	known.absorbed, known.spare = false, false
	k.beginWake(known, 1)
	return true
}

// Parked notes how many tasks are parked on a key, and its number of standby places.
func (k *Keys) Parked(name string, parked, limit int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.key(name)
	known.parked, known.limit = parked, limit
}

// Release describes the release of a key.
type Release struct {
	Held      time.Duration // how long the handler had the key; zero if none ran
	HandedOff bool          // the next holder is a task of this process
	Notify    bool          // a refused task has subscribed to the release
	Looked    bool          // the release has looked for parked tasks: without Notify there were none
}

// Released notes that a key was released, and returns how many tasks to wake. The caller must report them to
// [Keys.Woke] or [Keys.NotWoken]. spare reports whether a slot is free for standby; it is called only if tasks wait for
// the key.
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
	if !r.Notify && (r.Looked || known.parked == 0) { // an earlier release, whose outcome is noted later, may have woken them
		return 0
	}
	if !r.HandedOff && known.waiting > 0 {
		known.absorbed = true
	}
	return k.wakesFor(known, r.HandedOff, spare)
}

// Want notes that a task waits in its slot that needs all of these keys. over ends that.
func (k *Keys) Want(names []string) (over func()) {
	add := func(n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, name := range names {
			k.key(name).wanted += n
		}
	}
	add(1)
	return func() { add(-1) }
}

// Plan is like Released, but is called before the release, when it is not known whether tasks are parked on the key.
// If a task waits in its slot, it gets the key, and none is to be woken before Released is called after the release.
// known is false if this server knows nothing of the key: then one task is to be woken, and [Keys.Learn] must be
// told of it instead of [Keys.Woke] or [Keys.NotWoken].
func (k *Keys) Plan(name string, held time.Duration, spare func() bool) (most int, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	this := k.keys[name]
	if this == nil {
		return 1, false
	}
	this.hold = Average(this.hold, held)
	if this.waiting > 0 || this.wanted > 0 {
		return 0, true
	}
	return k.wakesFor(this, false, spare), true
}

// Learn notes how long a key was held of which this server knew nothing, and how many tasks are still parked on it.
func (k *Keys) Learn(name string, held time.Duration, parked int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.key(name)
	known.hold, known.parked = Average(known.hold, held), parked
}

// wakesFor decides how many tasks the release of a key wakes. The caller holds the mutex.
func (k *Keys) wakesFor(known *key, handedOff bool, spare func() bool) int {
	known.used = time.Now()
	k.expire(known, known.used)
	limit := 0
	if known.spare = spare(); known.spare {
		limit = min(known.limit, mostPlaces)
	}
	n := wakes(limit, known.waiting, known.waking+len(known.reserved), handedOff)
	k.beginWake(known, n)
	return n
}

// Woke notes that of asked tasks those in tasks were woken, and that left are still parked. It reserves a place for
// each woken task that has not arrived yet, and reports whether a task of this server waits in its slot for the key.
func (k *Keys) Woke(name string, asked int, tasks []line.Task, left int) (awaited bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.keys[name]; known != nil {
		awaited, known.parked = known.waiting > 0, left
		k.reserve(name, known, tasks)
	}
	k.endWake(name, asked)
	return awaited
}

// NotWoken notes that asked tasks could not be woken.
func (k *Keys) NotWoken(name string, asked int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endWake(name, asked)
}

// beginWake notes that n tasks are being woken for a key. The caller holds the mutex.
func (k *Keys) beginWake(known *key, n int) {
	if known.waking == 0 {
		known.begun = k.arrivals.count
	}
	known.waking += n
	k.waking += n
}

// endWake notes that asked tasks are no longer being woken. The caller holds the mutex.
func (k *Keys) endWake(name string, asked int) {
	if known := k.keys[name]; known != nil {
		known.waking -= asked
	}
	if k.waking -= asked; k.waking == 0 {
		clear(k.arrivals.early)
	}
}

// key returns what is known about a key, and adds the key if necessary. The caller holds the mutex.
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

// forget drops idle keys whenever the number of keys has doubled. The caller holds the mutex.
func (k *Keys) forget(now time.Time) {
	if k.keys == nil {
		k.keys, k.sweep = map[string]*key{}, few
	}
	if len(k.keys) < k.sweep {
		return
	}
	for name, known := range k.keys {
		k.expire(known, now)
		if known.waiting == 0 && known.wanted == 0 && known.waking == 0 && len(known.reserved) == 0 && now.Sub(known.used) > idle {
			delete(k.keys, name)
		}
	}
	k.sweep = max(2*len(k.keys), few)
}
