// Package intake takes tasks for one asynq server: as many in one call as the server has free slots, and the next ones
// with the acknowledgements of those before them.
//
// asynq fetches one task at a time, on one goroutine, with a round trip for each; that limits the throughput of a
// server, whatever its concurrency. An [Intake] sends the acknowledgements that come at the same time in one script,
// together with one fetch for all free slots: about half of what a script costs Redis is the call itself. It keeps the
// fetched tasks in memory until asynq asks for them, which it does as soon as a slot is free. A task in memory is
// active in Redis, just as if asynq had fetched it itself; one that asynq does not ask for within a tenth of a second
// is put back at the head of its queue.
//
// Where the locks are not on the Redis of the tasks, [Tasks] may lock the keys of all tasks of a fetch before asynq gets them.
//
// Where the locks are on the Redis of the tasks, the fetch also takes the locks of a task whose keys are recorded. The
// next fetch takes those of a task whose keys [Options].KeysIn finds; until then the task waits in memory. The
// acknowledgement releases them, and wakes the next tasks that are parked on their keys: see package colocated. If
// another task is already parked on a held key, or the tasks of the key run in order, the script that fetches a task of
// that key also parks it: see [Parking].
//
// A script reaches the queues of one place: all queues on one Redis, those of one lane or one queue on a Redis Cluster. With
// lanes the places take turns, a few at a time, so that each call has many tasks.
//
// A lost reply strands no task. go-redis never sends a call twice. An acknowledgement is repeated by the Intake until
// it is answered, and takes effect in that run of the task alone. Every fetch has a name, including one that goes with
// acknowledgements, and the runs of the tasks that it takes carry that name. A fetch that is not answered is recalled
// until the recall is answered: the recall finds the tasks of the fetch, and the fetch takes nothing if it arrives
// late.
package intake
