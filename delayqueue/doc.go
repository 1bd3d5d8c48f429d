// Package delayqueue keeps the tasks that wait for a key, and wakes exactly the next one when the key is given back.
//
// A parked task lies in asynq's own retry set, where asynq's own script put it: nothing is copied, so nothing can be lost
// or doubled, and its ID, headers, options, unique lock and retry count stay as they are. What asynq lacks is here: a
// registry on the same Redis of who waits for which key, since when and how often refused; bounds on all three; and the
// wake. A wake moves the next waiter to the head of its queue. A waiter that is gone (deleted, archived, run by hand) is
// skipped; one whose handler has not returned yet is tried again within milliseconds. Should a wake be lost all the same,
// because the waker crashed, the waiter's own timer in the retry set brings it back: that costs delay, never a task.
//
// A task on its last attempt would be archived by asynq if it reported a conflict. [Queue.Move] takes it to a delay queue
// of its own instead, with its ID, from where [Queue.Claim] lets exactly one copy run.
//
// The package knows nothing of locks. It needs Redis 6.2 or later: standalone, a master watched by Sentinel, or a Cluster.
//
// One sorted set, railtoken:parked, is an index of all tasks that wait, whatever their keys. It bounds how many there are.
//
// # Redis Cluster
//
// On one node each call is one script, and atomic. On a Cluster the registry of a key, the tasks of a queue, the index and the
// tombstone of a moved task are in slots of their own. There the same functions run as scripts of their own, one after
// another: three round trips for a Park, four to six for a Wake. Their order is such that a call which ends halfway, because its process or a
// node has crashed or a reply was lost, costs this and no more:
//
//   - Park noted the conflict, but the task is not in line: its timer brings it back. If it has left another line, the wake that it
//     may have had there is passed on first, perhaps twice: then a waiter tries its key too early, and waits again.
//   - Park entered the task in the index only: it counts for the total until it parks again, ends, or is found to be gone.
//   - Wake took waiters out of the line, but has not promoted them: their timers bring them back. Without a crash two wakes never have the
//     same waiter, and none is lost: one that is gone passes the wake on, one that runs already tries its key by itself.
//   - Wake promoted a task, but it is still in the index: it counts until it parks again or ends.
//   - Move chose a name and no more: the next one chooses again.
//
// What every Redis with replicas does holds there too: a failover may lose the last writes.
//
// # What it promises and what not
//
// A task is never dropped without a word: it waits, runs, or reaches a bound that the caller gave, which is reported. The
// order is that of the first conflicts, but it is not strict: a task that arrives while the key is free does not queue up.
package delayqueue
