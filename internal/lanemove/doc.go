// Package lanemove moves tasks of a queue without lanes into lanes, while servers with lanes work on both.
//
// The two queues are in different slots of a Redis Cluster, so the move of a task is several steps. Only one of them decides:
//
//  1. copy: the task's hash is copied into the lane, with its names as they are there. The copy is in no set, so nothing runs it,
//     and it ends by itself.
//  2. take: the task is taken from the set in which it is, unless it has changed since it was read. A record beside the queue
//     notes where it goes. From here on the task goes into the lane, and nowhere else.
//  3. rank: in the sequence of its key it is replaced by the copy, at the same position.
//  4. activate: the copy is put into the set of the lane in which the task was. A record beside the lane notes it.
//  5. stand: the waiters of its keys are told of the copy, and a wake of the key is owed.
//  6. finish: what is left of the task in its old queue is deleted, and the notes are.
//
// Until step 2 the task runs in its old queue, after step 4 in the lane. A move that ends in between leaves tasks in no set; the next
// move begins with the records, and goes on with them. That of the lane says which copies have been activated, also when they have
// run since, so that no task is doubled.
//
// Of two moves of a queue the later one counts: each has a number, which is in both records, and a script refuses a move with a
// smaller one. So a move that was stopped for a while and goes on does no harm.
//
// The sequences of keys come first, for all queues: their entries keep their positions under the names that the keys have with lanes.
package lanemove
