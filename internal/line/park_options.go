package line

import (
	"errors"
	"time"
)

// ErrGone reports that asynq knows no such task, or that the task is not active: it was deleted, or asynq has given up
// its run.
var ErrGone = errors.New("delayqueue: the task is gone")

var errNotYet = errors.New("asynq's lease on the task has not ended")

// resigned returns the error of a reply of the resign function.
func resigned(reply string) error {
	switch reply {
	case "not active":
		return ErrGone
	case "not yet":
		return errNotYet
	default:
		return nil
	}
}

// idleWaiters is the least time for which a set of waiters outlives the last task that joined it. A parked task joins
// again each time its timer ends, and the set outlives two of the longest timers, so a set in use does not expire. What
// tasks that were deleted by hand leave behind does.
const idleWaiters = 48 * time.Hour

// Conflict describes the refusals of a task since its handler last ran.
type Conflict struct {
	// Count is how often it was refused.
	Count int
	// First is when it was first refused, by the clock of Redis; zero when it never was.
	First time.Time
}

// Parked says where a parked task stands.
type Parked struct {
	Conflict
	// Task is the task: in another queue than before when [ParkOptions].Queue has named one.
	Task Task
	// Free reports that the key was released meanwhile. The task does not wait: it is at the head of its queue.
	Free bool
	// Looked reports that Park has checked whether the key was released; otherwise the caller must check once more.
	Looked bool
	// Waiters is how many tasks wait for the key, this one included.
	Waiters int
	// Ahead is how many of them stand before it.
	Ahead int
	// Timer is when the task tries again if no wake comes.
	Timer time.Duration
}

// ParkOptions says how a task waits. The zero value is a first attempt without limits, which is retried at once.
type ParkOptions struct {
	// Attempt is the task's retry count: its conflicts are counted anew when its handler has run.
	Attempt int
	// MaxWaiters and MaxTotal limit how many tasks may wait for the key and for all keys, and MaxAge how long the task
	// may wait; no limit when zero.
	MaxWaiters, MaxTotal int
	MaxAge               time.Duration
	// RetryAfter is when the task tries again if no wake comes and it is among the first waiters. The further back it
	// stands, the longer its timer, up to 10 min, or 20 ms for each task before it when that is longer. A wake that
	// makes it the next waiter shortens its timer. MaxAge caps the timer.
	RetryAfter time.Duration
	// Waited is how long ago the task was first refused in this run.
	Waited time.Duration
	// InOrder says that the tasks of the key run in sequence ([Engine.Join]). Then Ahead is how many stand before the
	// task, and not how many were refused before it.
	InOrder bool
	Ahead   int
	// Also are further keys that the task waits for, [MostAwaited] less one at most: the first of all its keys that is
	// released wakes it, and it waits for the others no more. One that has MaxWaiters already is left out. It must be
	// empty when the tasks of the key run in order.
	Also []string
	// Locks are the lock of the key and those of Also, when they are on the Redis of the tasks. When one of them does not
	// exist and the task may run next, it does not wait: Park puts it at the head of its queue, but not twice in a row.
	// Empty when the locks are elsewhere.
	Locks []RedisKeys
	// Record are all keys of the task if the fetch that brings it back is to take their locks, as for a task that its producer
	// has recorded them with. Locks must not be empty then. On a Cluster, where no fetch takes locks, it does nothing.
	Record []string
	// Queue, when not empty, is the queue in which the task waits and runs from then on, with its ID, uniqueness lock
	// and counts. All queues must be on one Redis. If another task has the ID there, the task stays where it is.
	Queue string

	// Own says that the key is none of a lock: each wake is for one task, whatever that does.
	Own bool
	// Foremost, if not empty, has the task stand before all others that have none: it is the group that it supersedes.
	Foremost string

	unique   string // its uniqueness lock, if it has one
	deadline int64  // of the task (s), 0 for none
	nonce    string // of the run
	late     bool   // asynq's lease must have ended
}

// MostAwaited is how many keys a task can wait for.
const MostAwaited = 8

// RedisKeys are the names in Redis of a lock and of its notify key, which tells the holder that others wait.
type RedisKeys struct {
	Lock, Notify string
}

// idle returns how long a set of waiters is kept that no task joins.
func (o ParkOptions) idle() int64 { return max(idleWaiters, 2*o.MaxAge, 2*o.RetryAfter).Milliseconds() }

// flag returns what scripts are told of an option.
func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// further returns Also as the scripts are told: see awaits in task.lua.
func (o ParkOptions) further(n Names) string {
	if len(o.Also) == 0 {
		return ""
	}
	return " " + n.encoded(o.Also)
}

// withUnique adds the task's uniqueness lock, if it has one, to other keys of its queue.
func (o ParkOptions) withUnique(names []string) []string {
	if o.unique == "" {
		return names
	}
	return append(names[:len(names):len(names)], o.unique)
}
