package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/taskrun"
	"github.com/railtoken/railtoken/locking"
)

// EventKind is what happened.
type EventKind string

// The kinds of events. A wait lasts from a task's first refusal until its handler runs or the task is given up, across
// all of its runs. It has exactly one Refused event: count these events to count conflicts. Each run that is parked
// adds a Parked and an Ended event, and a task that is parked without running first adds only a Parked. The wait ends
// with Acquired, or with an Ended whose outcome is not Park. If the script that fetches tasks has parked some and its
// reply is lost, those tasks have neither a Refused nor a Parked event.
const (
	Refused  EventKind = "refused"  // a wait begins: a key is held, or another task comes first in the sequence
	Acquired EventKind = "acquired" // the handler is about to run
	Lost     EventKind = "lost"     // the lease was lost before the handler had returned; Released follows
	Released EventKind = "released" // the handler has returned, and the keys are released unless they were lost
	// Ended: the run ended in conflict: Err is its ConflictError, or the strategy's error. Or the task was cancelled: Err is its
	// CancelledError, and Released follows if it had its keys.
	Ended EventKind = "ended"
	// Parked: the task waits for its key. If the key was released in the meantime, the task runs again at once.
	Parked EventKind = "parked"
	Woke   EventKind = "woke" // the task Next was woken, or has come back by itself: see Cause
	// Unavailable: servers cannot be reached, or refuse a command (ACL). Each affected run has one such event.
	Unavailable EventKind = "unavailable"
	// Untold: the callback for the end of the task has failed for the last time. See OnArchived and OnCompleted of
	// attach.Options.
	Untold EventKind = "untold"
)

// WakeCause is why a waiting task runs again.
type WakeCause string

// The causes of a wake.
const (
	ByRelease WakeCause = "release" // a run has released the key, or has left it to the next task of its server
	ByRepair  WakeCause = "repair"  // a task that was woken before has not arrived: the Event has no Task
	ByTimer   WakeCause = "timer"   // its own timer or an operator has brought the task back; Task and Next are the same
)

// Event is something that happened to a task and its keys. Fields that do not belong to its Kind are zero.
type Event struct {
	Kind EventKind
	At   time.Time
	Task delayqueue.Task // with Parked, in the queue in which it waits
	Type string
	Keys []string

	Key    string          // of Refused, Ended, Parked and Woke; empty with ByTimer if the task has several keys
	Holder *locking.Holder // of Refused, Ended and Parked; nil if unknown
	Waited time.Duration   // of Refused, Ended, Parked and Acquired: how long the wait has lasted
	Held   time.Duration   // of Lost and Released: time since Acquired
	// Woken, of Acquired, is the time since a release let the task run: since the wake, for a parked task that found its
	// keys free, since the notification, for a task that waited in its slot, or since the hand-off, for one that waited in
	// memory. It is zero after a timer, and if the keys were collected.
	Woken time.Duration
	// Took, of Acquired, is the duration of the attempt that locked the keys; zero if they came with the task, were handed
	// off to it, or were collected. Backend is where the locks are: redis, redlock, or the name of the package that
	// implements the backend.
	Took    time.Duration
	Backend string
	// Waiters, of Parked, is the number of tasks that wait for the key, including this one. Ahead is the number of tasks
	// before this one: among the waiters with Parked, and in the sequence with Refused.
	Waiters, Ahead int
	// Fetched, of Parked, says that the task was parked as it was fetched: it has not run, so no Ended tells of its conflict.
	Fetched bool
	Cause   WakeCause       // of Woke
	Next    delayqueue.Task // of Woke, and of attach.Superseded
	// WakeLost says that no release woke the task although its keys were free and so was a slot: of Woke with ByRepair, that
	// the task woken before was deleted or archived, or that its queue is paused or has no worker; of Acquired, that the
	// task's timer has brought it back, because the last holder or the wake was lost.
	WakeLost bool
	// Reach is in the first event of a worker, which has no other field but At and the Kind "started". It returns for how
	// long the Redis of the tasks, and the servers of the locks, have not answered the worker or have refused its calls.
	// Both are below 6 s while they answer. It reports false once the worker is being shut down. It tries to take a lock, at
	// most once a second, and returns after 2 s at the latest.
	Reach func(context.Context) (tasks, locks time.Duration, ok bool)
	Err   error // of Ended and Untold; of Unavailable the cause; of Lost and its Released, why the lease was lost
}

// Observer receives events. It is called in the goroutine of the task, so it must return quickly, and it must be safe
// for concurrent use. Use it for metrics and traces. Keys are business data: hash them before you use them in logs or
// labels. A panic in the observer is logged with its stack, and the task goes on.
type Observer func(ctx context.Context, e Event)

// tell reports an event to an observer, if there is one. The event goes by pointer as far as possible, because events are
// large and the observer is called where the stack of a task is at its deepest.
func tell(ctx context.Context, observer Observer, log *slog.Logger, e *Event) {
	if observer == nil {
		return
	}
	e.At = time.Now()
	taskrun.CallObserver(ctx, log, string(e.Kind), e.Task, func() { observer(ctx, *e) })
}

// known returns a holder, or nil if nothing is known about it.
func known(h locking.Holder) *locking.Holder {
	if h == (locking.Holder{}) {
		return nil
	}
	return &h
}
