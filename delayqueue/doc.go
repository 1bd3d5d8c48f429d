// Package delayqueue keeps the tasks that wait for a key, and wakes the next one when the key is released.
//
// Package middleware uses a [Queue] for tasks that are refused a key. A program uses its [Inspector] to look at them:
//
//	queue, err := delayqueue.New(client, delayqueue.Options{}) // client is asynq's Redis
//	...
//	waiters, err := queue.Inspector().Waiters(ctx, "order:1042", 10)
//
// The Inspector lists the waiting tasks of a key, finds a task, puts it first or last, drops it, and replays archived
// ones. A process with handlers already has a Queue: the Queue methods of attach.Attached and worker.Worker return it.
// A handler with a conflict of its own parks its task with the Park method of that Queue; the Park method of any other
// Queue returns [ErrNotOurs].
//
// # Waiters
//
// A parked task is in asynq's own retry set. Nothing is copied, so nothing can be lost or duplicated, and the task's
// ID, headers, options, uniqueness lock and retry count do not change; a task on its last attempt waits like any other.
// In addition, each key has a sorted set of the tasks that wait for it.
//
// A wake moves the next waiter that can run to the head of its asynq queue. It skips a waiter that is gone (deleted,
// archived, past its deadline) or whose queue is paused or has no server. If a woken task has not tried its key within
// half a second, the next one is woken in its place. If a wake is lost, because the process that should send it
// crashed, the waiter's own timer brings it back: that costs time, never a task.
//
// A task is never dropped silently. It runs, or it waits, or it exceeds one of the [Limits] that its strategy sets,
// which is reported. There are no limits by default.
//
// # Order
//
// The waiters of a key are in the order in which they were first parked, and are woken in this order. Their handlers
// may still run in a different order: a task that arrives while the key is free does not wait, and if several tasks
// were woken, the first one to arrive gets the key. [Inspector.Waiters] lists them, and [Inspector.PutFirst] reorders
// them.
//
// Tasks that run in order (middleware.FIFO, middleware.StrictFIFO) also have a position in the sequence of their key,
// which [Inspector.Sequence] lists. They join it when EnqueueInOrder of attach.Producer or worker.Client enqueues them,
// or else when they first run, and leave it when they are done. Only the first task of a sequence takes the lock.
//
// Tasks that wait for a key in their worker slots or in a server's memory are not parked and not listed.
//
// # Redis
//
// The package needs Redis 6.2 or later: standalone, a master behind Sentinel, or a Cluster. As with every Redis that
// has replicas, a failover may lose the most recent writes. The package knows nothing of locks.
package delayqueue
