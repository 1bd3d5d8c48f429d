// Package middleware lets an asynq handler run only while it holds the locks of its task's business keys.
//
// [Lock] makes an asynq middleware. For each task it takes the keys that a [KeyFunc] finds, runs the handler with a
// context that ends when the lease is lost, releases the keys and wakes the next task. When another task holds a key, a
// [Strategy] decides what happens: [FailFast] reports it at once, [Wait] stays in the worker slot for a while, and
// [Requeue] parks the task in asynq's retry set and frees the slot. For a key that is held briefly, Requeue keeps the
// next task on standby in its slot.
//
// The Redis client and the Config of an asynq server decide what becomes of a task in conflict. Package attach makes
// both for an existing server, and package worker makes a whole server. With any other client each task fails with
// [delayqueue.ErrNotOurs].
//
// Wrap each handler on its own (mux.Handle(pattern, lock(handler))). With mux.Use the middleware would also lock for
// tasks that have no handler.
//
// # Guarantees
//
// One task at a time runs for a key, in all processes, for as long as the lock's backend keeps its data and handlers
// heed their context. Tasks run at least once, as always with asynq: a task runs again after a crash or a lost lease,
// and a handler that was stopped for longer than its TTL may still be writing. Where that matters, let the database
// check the lease's fencing token ([locking.FromContext], then Fence). See package locking.
//
// A waiting task is never lost and never counts as failed. It waits until it runs or reaches one of the
// [delayqueue.Limits] of its strategy, even on its last attempt, and even while the lock servers cannot be reached.
// Wakes are a matter of speed: when one is lost, the task's own timer brings the task back. A task that FailFast ends
// is archived, retried or discarded, as its Outcome says.
//
// When asynq's own Redis cannot be reached for 30 s, asynq takes a worker for dead and counts the runs of its tasks as
// failed. The worker puts back a task that has only waited in its slot as soon as it reaches Redis again. A task whose
// handler has begun uses up a retry, and is archived on its last attempt.
//
// # Panics
//
// When a handler, a key function, a strategy or an OnLimit callback panics, the run releases its keys and its room in
// the [SlotBudget] and wakes the next waiter. asynq reports the panic and retries the task, as it does without the
// middleware. The same happens when such code calls runtime.Goexit, as t.FailNow does; asynq does not notice that and
// counts the task as running until its timeout. A panic of an [Observer] is logged, and the task goes on.
//
// # Order
//
// With [BestEffort], the default, a release wakes the task that was refused first. This is the usual order, not a
// promise: a task that arrives while the key is free takes it, and of several tasks on standby the quickest gets it.
//
// With [FIFO] and [StrictFIFO] the tasks of a key run in the order in which they arrived, over all queues and
// processes, when
//
//   - all handlers that work on the key have the same order. A handler with another order, with FailFast or with a
//     strategy of your own that does not unwrap to a Requeue takes the key whenever it is free, and neither kind need
//     wake the right task of the other, so that tasks may wait for their timers. Exclusion still holds;
//   - each task has exactly one key. A task with more is archived with a [KeyError];
//   - they are enqueued with attach.Producer.EnqueueInOrder. Others join the sequence when they first run;
//   - Redis keeps its data: the sequence is on the Redis of the tasks. Losing it costs the order, and nothing else.
//
// A worker's crash delays the tasks of its key by asynq's lease (30 s) or the lock's TTL. Then the next task finds the
// key free and makes the task of the dead worker run first. That one has used up a retry if its handler had begun, and
// is archived if that was its last.
//
// With StrictFIFO a task whose handler has failed holds up the tasks behind it until its last retry, or for half the
// limit on age if there is one, so choose its retries and their delays with them in mind. When it is deleted by hand,
// the tasks behind it find out by their own timers.
//
// # Standby
//
// A woken task takes some milliseconds to arrive. With [Requeue], when a key is held for a quarter of a second at most
// on average, as many tasks of a server wait in their slots as it takes to bridge that time: usually one, at most
// Standby (4). Such a wait lasts half a second at most, and a hundredth of the time that the task's timeout or deadline
// leaves it, so that the handler gets that time; then the task is parked. It ends at once when the server shuts down.
//
// A task on standby takes no slot from others: it waits only in a server with at least four slots, and only while
// another slot is free and has been for 20 ms, or nearly all tasks that arrive are refused and could not use it. The
// middleware knows this from [SlotBudget].Slots, which package attach sets; without it no task is on standby. All waits
// in slots, those of [Wait] too, draw on the server's SlotBudget, so that a hot key cannot fill the slots.
//
// # Several keys
//
// A task of several keys takes all of them at once or none. When it has been refused three times and is about to be
// parked, it takes them one after another, in sorted order, and keeps those that it has while it waits in its slot for
// the next. Without this it would starve, because many busy keys are hardly ever free at the same moment. One task of a
// server does so at a time, beside the SlotBudget, for 3 s to 1 min depending on how long keys are held, and for a
// quarter of the time before its deadline at most. A handler that locks further keys by itself while it holds some can
// still wait for such a task, and make it wait, until that time is up.
package middleware
