// Package attach adds locks to an existing asynq server: only one task at a time runs for a business key, and a task
// that waits for its key does not use up a retry.
//
// [New] takes the server's Redis client and asynq.Config. The [Attached] that it returns provides the middleware, and a
// client and a Config to use in their place:
//
//	rt, err := attach.New(client, asynq.Config{Queues: queues}, attach.Options{})
//	...
//	defer rt.Close() // after Run
//
//	orderKey := middleware.PayloadKey(func(o Order) string { return middleware.Key("order", o.ID) })
//	mux := asynq.NewServeMux()
//	mux.Handle("order:audit", rt.Lock(orderKey)(auditHandler))
//
//	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
//	err = srv.Run(mux)
//
// Nothing else changes: the mux, the handlers, producers, the Inspector and the scheduler stay as they are, and servers
// without locks may work on the same queues. If a line is missing, New or the first task reports it, with the line to
// add.
//
// # Shutdown
//
// Call [Attached.Close] once the servers have shut down (Run has returned), and close the client after that. A shutdown
// waits for tasks that wait in their slots: at most Max with middleware.Wait, and up to a minute more for a task that
// collects several keys. asynq's ShutdownTimeout ends these waits, too. To park these tasks at once, start the server with
// Start instead of Run, and call [Attached.Stop] before Shutdown.
//
// # Redis and its user
//
// A server checks Redis before its first fetch, and works on no task until the check succeeds. Redis must be 6.2 or
// later, must not be a replica and must not evict keys. Its user needs the rules
//
//	~asynq:* ~railtoken:* &asynq:* &railtoken:* +@all -@dangerous +info (and +cluster on a Cluster)
//
// With [Options].Namespace, for example "shop-a", and NamespaceTasks, ~shop-a:* &shop-a:* take the place of the rules for keys
// and channels, and applications with different namespaces share nothing.
//
// asynq logs the error, with the command that adds the missing rules. Call [Attached.Check] to fail at startup instead.
// If a user loses rules while the server runs, tasks wait as if the lock servers could not be reached, and do not use
// up a retry.
//
// # More options
//
//   - [Attached.LockWith] gives a handler its own strategy, TTL or MaxHold. Options.Strategy applies to all others.
//   - locking.FromContext returns the lease of a handler, and the lease's FenceOf method returns the fencing token of a
//     key: let the database refuse smaller tokens.
//   - Package items makes handlers for tasks that are divided into many items, each with a lock of its own.
//   - Wrap handlers without keys with [Attached.Unlocked], so that the servers know how many slots are free.
//   - With middleware.Requeue{Order: middleware.FIFO}, tasks run in the order in which [Producer.EnqueueInOrder]
//     enqueued them.
//   - [NewProducer] enqueues tasks with their keys, and can refuse a task whose key is held. A server then takes the
//     locks of a task with the task itself, and the task costs no more calls than without locks.
//   - Options.OnArchived and OnCompleted hear of tasks that have ended for good, and [Producer.Wait] waits for the result of one.
//   - For locks on several servers, set Options.Locker to a locking.Redlock, with FenceTTL(maxHold) as its FenceTTL. For
//     locks with connections of their own, use a locking.Single on a second client instead.
//
// [Attached.Ready] and [Attached.Live] are HTTP handlers for probes.
//
// [Attached.Schedule] runs an asynq Scheduler in one of several replicas. Package worker configures all of this from
// the environment, with typed handlers.
//
// # Other middlewares
//
// A task that waits ends its run with a middleware.ConflictError, which asynq does not count as a failure. A middleware
// around the lock sees this error. Loggers and error trackers should ignore errors for which [Waits] is true. If a
// middleware swallows the error, the task is not lost: it still waits, and a warning is logged.
package attach
