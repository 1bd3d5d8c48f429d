// Package attach adds locks to an existing asynq server: one task at a time runs for a business key, and a task that
// waits uses up no retry.
//
// [New] takes the server's Redis client and asynq.Config and gives back both, as asynq must have them, and the
// middleware:
//
//	rt, err := attach.New(client, asynq.Config{Queues: queues}, attach.Options{})
//	...
//	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
//	mux := asynq.NewServeMux()
//	mux.Handle("order:audit", rt.Lock(orderKey)(auditHandler))
//
// Nothing else changes: the mux, the handlers, producers, the Inspector and the scheduler stay as they are, and servers
// without locks may work on the same queues. New, or the first task, reports what was forgotten, with the line to add.
//
// # Shutdown
//
// Call [Attached.Close] when the servers are shut down (Run has returned), and close the client after it. A shutdown
// waits for tasks that wait in their slots: half a second at most with the default strategy, Max with middleware.Wait.
// Start the server with Start instead of Run and call [Attached.Stop] before Shutdown to park those at once.
//
// # Redis and its user
//
// A server checks Redis before its first fetch, and works on no task until all is well: it is 6.2 or later, no replica,
// evicts no keys, and its user has the rules
//
//	~asynq:* ~railtoken:* &asynq:* &railtoken:* +@all -@dangerous +info (and +cluster on a Cluster)
//
// asynq logs the error, with the command that adds the missing rules. Call [Attached.Check] to fail at the start. When
// a user loses rules while the server runs, tasks wait as if the lock servers could not be reached, and use up no
// retry.
//
// # More than the key
//
//   - [Attached.LockWith] gives a handler a strategy, TTL or MaxHold of its own. Options.Strategy is for all others.
//   - locking.FromContext gives a handler its lease, and FenceOf the fencing token of a key: let the database refuse a
//     smaller one.
//   - Wrap handlers without keys with [Attached.Unlocked], so that the servers know how many slots are free.
//   - With middleware.Requeue{Order: middleware.FIFO} tasks run in the order in which [Producer.EnqueueInOrder]
//     enqueued them.
//   - [NewProducer] enqueues tasks with their keys, and can refuse one whose key is held.
//   - Locks on several servers: Options.Locker is a locking.Gate over locking.NewRedlock, with [FenceTTL]. Likewise,
//     locks with connections of their own: over locking.NewSingle on a second client.
//
// [Attached.Schedule] runs an asynq Scheduler in one of several replicas. Package worker does all of this from the
// environment, with typed handlers.
//
// # Other middlewares
//
// A task that waits ends its run with a middleware.ConflictError that asynq does not count as a failure. A middleware
// around the lock sees it: let a logger or an error tracker pass over what [Waits] reports. One that swallows the error
// does not lose the task: it waits all the same, and the log says so.
package attach
