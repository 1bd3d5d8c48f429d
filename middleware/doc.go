// Package middleware lets an asynq handler run only while it holds the locks of its task's business keys.
//
// [Lock] returns an asynq middleware. For each task it locks the keys that a [KeyFunc] returns, runs the handler with a
// context that ends when the lease is lost, releases the keys and wakes the next task. When another task holds a key, a
// [Strategy] decides what happens: [FailFast] ends the task at once, [Wait] keeps it in the worker slot for a while,
// and [Requeue] parks it in asynq's retry set and frees the slot.
//
// Most programs call attach.Attached.Lock, or use package worker: both call Lock with everything that parking needs.
// Call Lock yourself only for a server that never parks tasks:
//
//	locker, err := locking.NewSingle(client, locking.SingleOptions{})
//	...
//	defer locker.Close() // after the server has shut down, before the client
//	lock, err := middleware.Lock(middleware.Options{
//		Locker:   locker,
//		Key:      middleware.PayloadKey(func(o Order) string { return middleware.Key("order", o.ID) }),
//		Strategy: middleware.Wait{Max: 20 * time.Second}.Then(middleware.FailFast{Outcome: middleware.Retry}),
//	})
//	...
//	srv := asynq.NewServerFromRedisClient(client, middleware.ServerConfig(asynq.Config{Concurrency: 10}))
//	mux.Handle("order:audit", lock(auditHandler))
//
// Parking needs a Redis client and an asynq.Config made for it. Package attach makes both for an existing server, and
// package worker makes a whole server. With any other client, each task of a handler with a [delayqueue.Queue] fails
// with [delayqueue.ErrNotOurs].
//
// Wrap each handler separately: mux.Handle(pattern, lock(handler)). With mux.Use, the middleware would also lock the
// keys of tasks that have no handler.
//
// # Guarantees
//
// At most one task runs for a key at a time, across all processes, as long as the lock's backend keeps its data and
// handlers stop when their context ends. Tasks run at least once, as always with asynq: a task runs again after a crash
// or a lost lease, and a handler that was suspended for longer than its TTL may still be writing. Where that matters,
// let the database check the key's fencing token (fence.From). See package locking.
//
// A waiting task is never lost and never counts as failed. It waits until it runs or reaches one of the
// [delayqueue.Limits] of its strategy, even on its last attempt, and even while the lock servers cannot be reached.
// When a task is parked on its last attempt, asynq logs "Retry exhausted", although the task is not archived.
// Wakes only save time: if one is lost, the task's own timer brings the task back. A task that FailFast ends is
// archived, retried or discarded, depending on its Outcome.
//
// If asynq's own Redis cannot be reached for 30 s, asynq considers the worker dead and counts its running tasks as
// failed. The worker returns a task that has only waited in its slot to its queue as soon as it reaches Redis again. A
// task whose handler has begun uses up a retry, and is archived on its last attempt.
//
// # Panics
//
// When a handler, a key function, a strategy or an OnLimit callback panics, the run releases its keys and its share of
// the slot budget, and wakes the next waiter. asynq reports the panic and retries the task, as it does without the
// middleware. The same happens when such code calls runtime.Goexit, as t.FailNow does, but asynq does not notice that
// and counts the task as running until its timeout. A panic in an [Observer] is logged, and the task goes on.
//
// # Order
//
// With [BestEffort], the default, a release wakes the task that was parked first. This is the usual order, but it is
// not guaranteed: a task that arrives while the key is free takes it, and one that waits in memory is handed it.
//
// With [FIFO] and [StrictFIFO], the tasks of a key run in the order in which they arrived, across all queues and
// processes, provided that
//
//   - all handlers that work on the key use the same order. A handler with another order, with FailFast or with a
//     strategy of your own that does not unwrap to a Requeue takes the key whenever it is free. Its release may fail to
//     wake the next task of the sequence, and the sequence may fail to wake the tasks of that handler, so tasks may
//     have to wait for their timers. Exclusion still holds;
//   - each task has exactly one key. A task with several keys is archived with a [KeyError];
//   - the tasks are enqueued with attach.Producer.EnqueueInOrder. Other tasks join the sequence when they first run;
//   - Redis keeps its data. The sequence is on the Redis of the tasks; if it is lost, only the order is lost.
//
// A worker's crash delays the tasks of its key by asynq's lease (30 s) or the lock's TTL, whichever is longer. The next
// task then finds the key free and makes the dead worker's task run first. That task has used up a retry if its handler
// had begun, and is archived if that was its last one.
//
// With StrictFIFO, a task whose handler has failed holds up the tasks behind it until its last retry, or for half the
// limit on age if there is one. Choose its retries and their delays accordingly. If it is deleted by hand, the tasks
// behind it notice when their own timers end.
//
// # Successors
//
// A woken task takes a few milliseconds to arrive. So where locks are taken with the tasks, in BestEffort order, [Requeue]
// keeps one task in memory, in no slot, while a task of the same server has its keys: if they are held for 1 to 250 ms on
// average, and for half a second at most. It is handed the lease when that task ends.
//
// Tasks that [Wait] keeps in their slots draw on one budget of the server, so that hot keys cannot fill the slots. The
// exception is a task that collects several keys.
//
// # Several keys
//
// A task with several keys locks all of them at once or none, because a key that it kept while it waited for another
// would be idle. But many busy keys are hardly ever free at the same moment, and the task would starve. So it may
// collect its keys: it locks them one after another, in sorted order, and keeps those that it has while it waits in its
// slot for the next.
//
// A task that has been refused twice collects before it is parked again, for 3 s to 1 min depending on how long keys are
// held, and for at most a quarter of its MaxHold and of the time before its deadline. On each server, at most one task
// collects at a time. A handler that locks further keys itself while it holds some can block such a task, and be blocked
// by it, until that time is up.
package middleware
