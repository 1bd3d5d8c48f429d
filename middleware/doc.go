// Package middleware lets an asynq handler run only while it holds the lock of its business keys.
//
// [Lock] makes an asynq middleware. For each task it takes the keys that a [KeyFunc] finds, runs the handler with a context
// that ends when the lease is lost, gives the keys back and wakes the next task in line. When another task has a key, a
// [Strategy] decides what happens: [FailFast] reports it at once, [Wait] stays in the worker slot for a while, [Requeue]
// parks the task in asynq's retry set and frees the slot; for a key that is held briefly it keeps the next one or few on deck.
//
// asynq decides what becomes of a task in conflict by its server's Config and its Redis client, not by a middleware: package attach makes both for a server that
// exists, and package worker a whole server. A server that speaks to Redis through any other client gives each task [delayqueue.ErrNotOurs].
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
//
// A task that waits is never lost and never counts as failed: it waits until it runs or reaches one of the
// [delayqueue.Limits] that its strategy sets, also on its last attempt, and also while the servers for locks cannot be reached. Wakes are a matter
// of speed: when one is lost, the task's own timer brings it back. A task that FailFast ends is archived, retried or discarded, as it says.
//
// When asynq's own Redis cannot be reached for 30 s, asynq takes a worker for dead and counts the runs of its tasks as failed. A task that has only waited in
// its slot is put back by its worker instead, as soon as Redis can be reached again. One whose handler has begun uses up a retry, and is archived on its last
// attempt.
//
// # Panics
//
// When a handler, a key function, a strategy or an OnLimit callback panics, the run gives its keys and its place in the slot back and wakes the
// next waiter; asynq reports the panic and retries the task, as it does without the middleware. The same is given back when such code calls
// runtime.Goexit, as t.FailNow does; asynq does not notice that and takes the task for running until its timeout. An [Observer] that
// panics is logged, and the task goes on.
//
// # Order
//
// With [BestEffort], the default, the task that was refused first is woken first. That is the usual order and no promise: a
// task that arrives while the key is free takes it, and of several on deck the quickest has it.
//
// With [FIFO] and [StrictFIFO] the tasks of a key run in the order in which they came, over all queues and processes, when
//
//   - all handlers that work on the key have the same order. Mixing orders on one key is not supported. A handler with another
//     order, with FailFast or with a strategy of one's own (also one that only wraps a Requeue) takes the key whenever it is
//     free; neither kind need wake the right task of the other, so that tasks may wait for their timers. Exclusion holds all the same;
//   - each task has exactly one key. One with more is archived with a [KeyError];
//   - they are enqueued with worker.Client.EnqueueInOrder. Others join the line when they first run;
//   - Redis keeps its data: the line is on the Redis of the tasks. One that was lost costs the order, and nothing else.
//
// A worker's crash delays the tasks of its key by asynq's lease (30 s) or the lock's TTL: the next in line finds the key free and has the task of the
// dead worker run first, which has used up a retry if it had begun, or is archived if that was its last.
//
// With StrictFIFO a task whose handler has failed holds up those behind it until its last retry, or for half the limit on age if there is one; so
// choose its retries and their delays with them in mind. When it is deleted by hand, those behind it find out by their own timers; call
// [delayqueue.Queue.Remove] for it and [delayqueue.Queue.WakeTask] for who is next to spare them the wait.
//
// # On deck
//
// It takes a woken task some milliseconds to arrive. With [Requeue], when a key is held for a quarter of a second at most on
// average, as many tasks of a server wait in their slots as it takes to bridge that time: usually one, at most Standby (4). Such
// a wait lasts half a second at most, and a hundredth of the time that the task's timeout or deadline leaves it, so that its handler gets that
// time; then the task is parked. It ends at once when the server shuts down.
//
// A task on standby takes no slot from others: it waits only in a server of at least four slots, and only while another slot is free and has
// been for 20 ms, or nearly all tasks that come are refused and could not use it. The middleware knows this
// from [SlotBudgetOptions].Slots, which package attach sets; without it no task is on standby. All waits in slots, those of [Wait] too, draw on the
// server's budget of [SlotBudget], so that a hot key cannot fill the slots.
//
// # Several keys
//
// A task of several keys takes all of them at once or none. When it has been refused three times and is to be parked, it takes them one after
// another instead, in sorted order, and keeps those that it has while it waits in its slot for the next: many busy keys are hardly ever free at
// the same moment, and the task would starve. One task of a server does so at a time, beside the budget of [SlotBudget], for
// 3 s to 1 min depending on how long keys are held, and for a quarter of the time before its deadline at most. A handler that locks
// further keys by itself while it holds some can still wait for such a task, and make it wait, until that time is up.
package middleware
