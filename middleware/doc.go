// Package middleware lets an asynq handler run only while it holds the lock of its business keys.
//
// [Lock] makes an asynq middleware. For each task it takes the keys that a [KeyFunc] finds, runs the handler with a context
// that ends when the lease is lost, gives the keys back and wakes the next task in line. When another task has a key, a
// [Strategy] decides what happens: [FailFast] reports it at once, [Wait] stays in the worker slot for a while, [Requeue]
// parks the task in the delay queue and frees the slot.
//
// asynq asks its server's Config, not a middleware, whether an error is a failure and when to retry. [IsFailure], [RetryDelay] and
// [ErrorHandler] wrap those three functions and must be set on every server that runs the middleware; package worker does so.
//
// Wrap each handler on its own (mux.Handle(pattern, lock(handler))) rather than with mux.Use, which would also lock for
// tasks that no handler is registered for.
//
// # Which promise holds when
//
// One task at a time runs for a key, in all processes, for as long as the lock's backend keeps its data and a handler heeds
// its context. Tasks run at least once, as always with asynq: after a crash or a lost lease a task runs again, and a
// handler that was stopped for longer than its TTL may still be writing. Let the database check the lease's fencing token
// ([locking.FromContext], then Fence) where that matters. See package locking.
package middleware
