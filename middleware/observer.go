package middleware

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/locking"
)

// EventKind says what happened.
type EventKind string

// The kinds of events. Every conflict has an event: Refused each time that a strategy decides upon it, and Ended when the run ends
// without the lock. Attempts in between, of a task on deck or about to park, have none.
const (
	Refused  EventKind = "refused"  // an attempt found a key held, or it is another task's turn
	Acquired EventKind = "acquired" // the handler is about to run
	Released EventKind = "released" // the keys are given back, or their lease was lost: see Err
	Ended    EventKind = "ended"    // the run ended in conflict: Err is its ConflictError
	// ParkedEvent tells that the task waits for its key, or that the key was given back meanwhile and the task runs again at once.
	ParkedEvent EventKind = "parked"
	Woke        EventKind = "woke" // the task Next was woken: the key was given back, or a wake was passed on
)

// Event is something that happened to a task and its keys.
type Event struct {
	Kind EventKind
	At   time.Time
	Task delayqueue.Task
	Type string
	Keys []string

	Key    string          // of Refused, Ended, ParkedEvent and Woke: the key that it is about
	Holder locking.Holder  // of Refused, Ended and ParkedEvent
	Waited time.Duration   // of Acquired and ParkedEvent: since the task was refused first, over all of its runs
	Next   delayqueue.Task // of Woke
	Err    error           // of Released: why the lease was lost, or nil; of Ended
}

// Observer is told of events, in the goroutine of the task: it must be quick, and safe for use by many goroutines. Metrics and
// traces are made from it. Keys are business data: hash them before they go into logs or labels. An observer that panics fails no task: the panic
// is logged with its stack, and the run goes on.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }
