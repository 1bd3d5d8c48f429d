package standby

import (
	"maps"
	"slices"
	"time"

	"github.com/railtoken/railtoken/internal/line"
)

// leastReserved and mostReserved limit how long a place is reserved for a woken task, which is several times the
// average time of arrival. A task may never arrive, because another server has fetched it or an operator has deleted
// it.
const leastReserved, mostReserved = 20 * time.Millisecond, 2 * time.Second

// reservation is a standby place that is reserved for a woken task. spare says that a slot was free for standby then.
type reservation struct {
	task  line.Task
	at    time.Time
	spare bool
}

// arrivals is what is known about arriving tasks, for all keys.
type arrivals struct {
	expected map[line.Task]string // the keys of tasks with a reservation
	// early contains the tasks that arrived while tasks were being woken, numbered. The reply to a wake may name a task
	// that has already arrived.
	early map[line.Task]uint64
	count uint64 // the last number in early
	sweep int    // the size of early that triggers the next sweep
}

// Arrive records a run's start and the time since its wake: zero if the task was not woken, or if that is not known. If a
// place is reserved for the task, Arrive returns the name of its key, and whether a slot was free for standby then.
func (k *Keys) Arrive(t line.Task, woken time.Duration) (name string, spare bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pickup = Average(k.pickup, woken)
	name, ok := k.arrivals.expected[t]
	if !ok {
		if k.waking > 0 {
			k.noteEarly(t)
		}
		return "", false
	}
	delete(k.arrivals.expected, t)
	known := k.keys[name]
	for i, r := range known.reserved {
		if r.task == t {
			known.reserved, spare = slices.Delete(known.reserved, i, i+1), r.spare
			break
		}
	}
	return name, spare
}

// reserve reserves places for woken tasks, except for those that have arrived since the wake began. The caller holds
// the mutex.
func (k *Keys) reserve(name string, known *key, tasks []line.Task) {
	for _, t := range tasks {
		if k.arrivals.early[t] > known.begun {
			continue
		}
		if k.arrivals.expected == nil {
			k.arrivals.expected = map[line.Task]string{}
		}
		known.reserved = append(known.reserved, reservation{t, known.used, known.spare})
		k.arrivals.expected[t] = name
	}
}

// expire drops the reservations of tasks that have not arrived in time. The caller holds the mutex.
func (k *Keys) expire(known *key, now time.Time) {
	patience := mostReserved
	if k.pickup > 0 {
		patience = min(max(8*k.pickup, leastReserved), mostReserved)
	}
	known.reserved = slices.DeleteFunc(known.reserved, func(r reservation) bool {
		if now.Sub(r.at) < patience {
			return false
		}
		delete(k.arrivals.expected, r.task)
		return true
	})
}

// noteEarly notes a task that has arrived while tasks were being woken. The caller holds the mutex.
func (k *Keys) noteEarly(t line.Task) {
	a := &k.arrivals
	if a.early == nil {
		a.early = map[line.Task]uint64{}
	}
	if len(a.early) >= a.sweep {
		oldest := a.count
		for _, known := range k.keys {
			if known.waking > 0 {
				oldest = min(oldest, known.begun)
			}
		}
		maps.DeleteFunc(a.early, func(_ line.Task, n uint64) bool { return n <= oldest })
		a.sweep = max(2*len(a.early), few)
	}
	a.count++
	a.early[t] = a.count
}
