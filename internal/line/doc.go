// Package line is the engine of package delayqueue: it parks tasks on keys, wakes them, and keeps the sequences of
// keys whose tasks run in order. Packages delayqueue, middleware, worker and attach use it; users see delayqueue.Queue.
//
// An [Engine] has these parts:
//
//   - Runs: [Engine.Conn] makes the Redis client of an asynq server. It notes each task that the server fetches
//     ([Engine.Run]). It answers the acknowledgement of a task for which [Run.Park] was called, so no task is parked and
//     still active. asynq repeats an acknowledgement that is lost, but the task is parked only once. When Redis
//     cannot be reached until asynq's lease of 30 s has ended, the engine puts back a task that has only waited, and
//     asynq's recoverer is held off for half a minute: no retry is used up. [Engine.ParkHandler] is for handlers.
//   - Waiters: [Engine.Park], [Engine.Wake], and the check, half a second after a wake, that the woken task has
//     arrived. The set railtoken:waiters:{K} holds the tasks that wait for a key, and railtoken:parked those of all
//     keys.
//   - Sequences: [Engine.Join], [Engine.Remove] and [Engine.Front]. The set railtoken:sequence:{K} holds the tasks of a
//     key in order of arrival, whether they wait, run, or have yet to be fetched. The hash of each task names its
//     sequence, so an entry stands for one enqueue of the task. What makes an entry the head is said in one place
//     (lua/head.lua). An entry that is no head stays until a task behind it finds it.
//   - Enqueuing: [Engine.Enqueue] and [Engine.EnqueueInOrder].
//   - Locks, where they are on the Redis of the tasks ([Engine.Colocate]): the fetch takes those of a task, [Run.Claim]
//     gives them to its handler, and with [Run.Release] the acknowledgement releases them and wakes the next
//     waiters. A task whose key was held when it was fetched is parked without a run if package middleware, as the
//     [Parker] of its type, decides that it should be. Behind another one that is parked on the key, the script that
//     fetches it parks it too.
//
// # Redis Cluster
//
// On one node each call is one script and therefore atomic. On a Cluster the waiters of a key, the tasks of a queue and
// the index are in different slots. There the same Lua functions run as separate scripts, one after another: three
// round trips for a Park, one more each if others wait ahead of the task and if it waits for several keys, and four to
// seven for a Wake of one task. A call that ends halfway, because its process or a node has crashed or a reply was lost,
// has these consequences and no others:
//
//   - Park put the task into the retry set, but not among the waiters: its timer brings it back. If the task had been
//     woken for another key, that wake is passed on when it parks again, perhaps twice: then a waiter tries its key too
//     early, and waits again. Or the task is only in the index, and counts towards the total until it parks again,
//     ends, or is found to be gone.
//   - Park took so long that the task's timer brought it back before the last step, and the task then ended. Its entry
//     stays among the waiters and in the index until the next wake of the key finds the task gone. This takes no crash.
//   - Park for several keys left out some of the further ones: their releases do not wake the task, as when their limits
//     are reached. Or a Wake for one key left the entries of the others, which later wakes remove. The latter takes no
//     crash, and happens on one node, too.
//   - Wake took waiters out of the set, but has not moved them to their queues: their timers bring them back. Without a
//     crash two wakes never take the same waiter, and none is lost: a waiter that is gone passes the wake on, and one
//     that runs already tries its key by itself.
//   - Enqueue enqueued the task, but it is not in the sequence: it joins when it runs. This can happen on one node,
//     too.
//   - Join, or an Enqueue in order, noted the sequence in the task's hash, but added no entry: the task joins when it
//     runs.
//
// While the slot of a queue moves to another node, the node refuses every script that needs several keys of that slot
// before the script writes anything, because the scripts declare all of their keys. A wake then goes to a waiter of
// another queue, or is tried again until the slot has moved; Drop and Replay try for five seconds.
package line
