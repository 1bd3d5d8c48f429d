package taskrun

import (
	"sync"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
)

// Server is what the handlers of an asynq server share. Package attach makes it, and gives it to the middleware of each
// handler. The zero value is that of a server that never parks tasks.
type Server struct {
	// Queue is where tasks are parked; nil for nowhere. The asynq server must use a Redis client of this Queue.
	Queue *delayqueue.Queue
	// RedisKeys returns the Redis keys of a business key's lock and of the subscription beside it, if the locks are on
	// the Redis of the tasks: see [locking.Single.RedisKeys]. When nil, the locks are assumed to be elsewhere, and parking
	// a task costs one more attempt to lock its key.
	RedisKeys func(key string) (lock, notify string)
	// Slots is the Concurrency of the server; zero if it is not known.
	Slots int
	// Stopping ends all waits in slots when it is closed; nil never ends one.
	Stopping <-chan struct{}

	// Budget is made once, by the first middleware.
	Budget Budget
	Once   sync.Once
}

// Group is what other tasks may supersede: the tasks of one or more handlers.
type Group struct {
	Name    string // the type of each task when empty
	Discard bool   // a task that was superseded is deleted instead of archived
}

// Budget knows which slots of a server are occupied.
type Budget interface {
	// Occupy returns a handler whose tasks count as occupying a slot while they run. Those of handlers with locks count
	// without it.
	Occupy(next asynq.Handler) asynq.Handler
	// WasFull reports whether all slots are occupied, or were within the last second.
	WasFull() bool
}
