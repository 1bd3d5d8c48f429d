// Package delayqueue keeps the tasks that wait for a key, and wakes exactly the next one when the key is released.
//
// Package middleware uses a [Queue] for tasks that are refused a key. A program uses it to look at them:
// [Queue.Inspector] lists the waiting tasks of a key, finds one, puts it first or last, drops it, and replays archived
// ones. attach.Attached, worker.Worker and worker.Client have a method Queue.
//
// # Waiters
//
// A parked task lies in asynq's own retry set. Nothing is copied, so nothing can be lost or doubled, and its ID, headers,
// options, uniqueness lock and retry count do not change; a task on its last attempt waits like any other. Beside it,
// a sorted set for each key holds the tasks that wait for it, in the order in which they were first parked.
//
// A wake moves the next waiter that can run to the head of its asynq queue. It skips a waiter that is gone (deleted,
// archived, past its deadline) or whose queue is paused or has no server. A woken task that does not come to its key
// within half a second is replaced by the next. If a wake is lost, because the process that sent it crashed, the waiter's
// own timer brings it back: that costs delay, never a task.
//
// A task is never dropped silently: it runs, or waits, or exceeds one of the [Limits] that its strategy sets, which is
// reported. There are no limits by default.
//
// # Order
//
// The waiters of a key are not a strict order: a task that arrives while the key is free does not queue up, and of several
// woken tasks the quickest runs first. [Inspector.Waiters] lists them, and [Inspector.PutFirst] reorders them.
//
// Tasks that run in order (middleware.FIFO, middleware.StrictFIFO) also have a place in the sequence of their key, which
// [Inspector.Sequence] lists: from when they are enqueued by worker.Client.EnqueueInOrder, else from their first run,
// until they are done. Only the first of a sequence takes the key's lock.
//
// Tasks that wait for a key in their worker slots, on standby, are not parked and not listed.
//
// # Redis
//
// The package needs Redis 6.2 or later: standalone, a master behind Sentinel, or a Cluster. As with every Redis that has
// replicas, a failover may lose the last writes. The package knows nothing of locks.
package delayqueue
