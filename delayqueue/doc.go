// Package delayqueue keeps the tasks that wait for a key, and wakes exactly the next one when the key is given back.
//
// A parked task lies in asynq's own retry set: nothing is copied, so nothing can be lost or doubled, and its ID, headers, options, unique lock and retry
// count stay as they are. It gets there when asynq acknowledges its run, whatever asynq makes of it: an asynq server whose tasks are parked
// speaks to Redis through [Queue.Conn], which answers the acknowledgement of a task for which [Run.Park] was called. So a task on its last attempt waits
// like any other, and none is registered and still active. What asynq lacks is here: a
// registry on the same Redis of who waits for which key, since when and how often refused; bounds on all of these; and the
// wake. A wake moves the next waiter that can run to the head of its queue. A waiter that is gone (deleted, archived, past its deadline) is
// skipped, and so is one of a queue that is paused or that no server works on; one that was woken and does not come to its key is replaced by the next
// within a second. Should a wake be lost all the same, because the waker crashed, the waiter's own timer in the retry set brings it back: that costs
// delay, never a task.
//
// An acknowledgement that is lost is repeated by asynq, and parks the task once. When Redis cannot be reached for longer than asynq's lease of 30 s, the
// worker puts a task that has only waited back itself, and asynq's recoverer is held off for half a minute: no retry is used up.
//
// The package knows nothing of locks. It needs Redis 6.2 or later: standalone, a master watched by Sentinel, or a Cluster.
//
// # What it promises and what not
//
// A task is never dropped without a word: it waits, runs, or reaches a bound that the caller gave, which is reported. There is no bound by
// default. One sorted set, railtoken:parked, is an index of all tasks that wait, whatever their keys: [Limits].Total bounds how many
// there are of all workers on this Redis.
//
// # Order
//
// There are two orders, and they are kept apart.
//
// [Queue.Park] and [Queue.Wake] know the line of those who were refused. Its order is that of the first conflicts. It is not
// strict: a task that arrives while the key is free does not queue up, and of several that are woken together the quickest
// runs first. This is the line that [Queue.Waiters] shows and [Queue.PutFirst] changes.
//
// [Queue.Join] knows the line of all who have come, whether they wait, run or have yet to be fetched. A task joins it when it
// has been enqueued ([Queue.Enqueue]), else when it first runs, and stays in it until [Queue.Remove], or until somebody behind it
// finds that it was deleted, archived or completed. Nobody is in line of whom asynq knows nothing yet: who is gone stays so. Who takes a key's lock only when it is its turn runs in this order,
// whichever queue or process it is in; [Queue.WakeTask] wakes the one whose turn it is. A task that is parked meanwhile stands
// in both lines. Whoever enqueues in line needs handlers that leave it: with others the line grows with every task, and is
// forgotten 48 h after the last.
//
// # On deck
//
// Tasks that wait for a key in their worker slots are none of this package's: they are in no line of Park, and [Queue.Waiters]
// and [Queue.Count] do not show them. For a key that is held briefly, package middleware wakes some waiters
// ([WakeOptions].Most) before it is their turn, so that one is there when the key is given back. One that has waited there in
// vain is parked again, at the place of its first conflict.
//
// # Redis Cluster
//
// On one node each call is one script, and atomic. On a Cluster the registry of a key, the tasks of a queue and the index are in slots of their own. There
// the same functions run as scripts of their own, one after another: three round trips for a Park, four when others stand before the task, and four to
// seven for a Wake of one. A call that ends halfway, because its process or a node has crashed or a reply was lost, costs this and no more:
//
//   - Park put the task into the retry set, but it is not in line: its timer brings it back. A wake that it may have had in another line is passed on when
//     it parks again, perhaps twice: then a waiter tries its key too early, and waits again. Or it is in the index only, and counts for the total until it
//     parks again, ends, or is found to be gone.
//   - Wake took waiters out of the line, but has not promoted them: their timers bring them back. Without a crash two wakes
//     never have the same waiter, and none is lost: one that is gone passes the wake on, one that runs already tries its key by itself.
//   - Enqueue enqueued the task, but it is not in line, here and on one node: it joins when it runs.
//
// While the slot of a queue moves to another node, the node refuses what needs several keys of it, before anything is written: the scripts declare all
// of their keys. A wake then goes to a waiter of another queue, or is tried again until the slot has arrived; Drop and Replay try for five seconds.
//
// What every Redis with replicas does holds there too: a failover may lose the last writes.
package delayqueue
