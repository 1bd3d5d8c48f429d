package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/observe"
	"github.com/railtoken/railtoken/locking"
)

// EventKind is what happened.
type EventKind string

// The kinds of events. A wait is the time from a task's first refusal until its handler runs or it is given up, over
// all of its runs. It has one Refused, then a Parked and an Ended for each run that ends without the keys, and at last
// Acquired, or an Ended whose outcome is not Park.
const (
	Refused  EventKind = "refused"  // a wait begins: a key is held, or it is another task's turn
	Acquired EventKind = "acquired" // the handler is about to run
	Lost     EventKind = "lost"     // the lease was lost before the handler had returned; Released follows
	Released EventKind = "released" // the handler has returned, and the keys are released unless they were lost
	Ended    EventKind = "ended"    // the run ended in conflict: Err is its ConflictError
	// Parked: the task waits for its key, or the key was released meanwhile and the task runs again at once.
	Parked EventKind = "parked"
	Woke   EventKind = "woke" // the task Next was woken, or has come by itself: see Cause
	// Unavailable: servers cannot be reached, or refuse a command (ACL); once for each time that a run meets it.
	Unavailable EventKind = "unavailable"
)

// WakeCause is why a waiting task runs again.
type WakeCause string

// The causes of a wake. The run that releases a key reports the first two.
const (
	ByRelease WakeCause = "release" // the key is free
	ByStandby WakeCause = "standby" // the key is free soon: the task is to wait for it in its slot
	ByRepair  WakeCause = "repair"  // a task that was woken before has not come: the Event has no Task
	ByTimer   WakeCause = "timer"   // its own timer or an operator has brought the task back; Task and Next are the same
)

// Event is something that happened to a task and its keys. Fields that do not belong to its Kind are zero.
type Event struct {
	Kind EventKind
	At   time.Time
	Task delayqueue.Task // in Parked with the queue in which it waits
	Type string
	Keys []string

	Key    string          // of Refused, Ended, Parked and Woke; none of Woke by timer of a task with several
	Holder *locking.Holder // of Refused, Ended and Parked; nil when it is not known
	Waited time.Duration   // of Refused, Ended, Parked and Acquired: how long the wait has lasted
	Held   time.Duration   // of Lost and Released: since Acquired
	// Waiters, of Parked, is how many tasks wait for the key, this one included. Ahead, of Parked, is how many of them
	// stand before it; of Refused, in order, how many tasks stand before it in the sequence.
	Waiters, Ahead int
	Cause          WakeCause       // of Woke
	Next           delayqueue.Task // of Woke
	Err            error           // of Ended; of Unavailable the cause; of Lost, and of Released after it, why the lease was lost
}

// Observer receives events in the goroutine of the task, so it must be quick, and many goroutines call it at the same
// time. Use it for metrics and traces. Keys are business data: hash them before they go into logs or labels. A panic of
// the observer is logged with its stack; the task goes on.
type Observer func(ctx context.Context, e Event)

// tell gives an event to an observer, if there is one.
func tell(ctx context.Context, observer Observer, log *slog.Logger, e Event) {
	if observer == nil {
		return
	}
	e.At = time.Now()
	observe.Call(ctx, log, string(e.Kind), e.Task.String(), func() { observer(ctx, e) })
}

// known returns a holder, or nil when nothing is known of it.
func known(h locking.Holder) *locking.Holder {
	if h == (locking.Holder{}) {
		return nil
	}
	return &h
}
