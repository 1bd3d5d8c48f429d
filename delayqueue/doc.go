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
// The package knows nothing of locks. It needs a standalone Redis 6.2 or later, or a master watched by Sentinel.
//
// # What it promises and what not
//
// A task is never dropped without a word: it waits, runs, or reaches a bound that the caller gave, which is reported. The
// order is that of the first conflicts, but it is not strict: a task that arrives while the key is free does not queue up.
package delayqueue
