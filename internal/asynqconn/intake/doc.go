// Package intake takes tasks for one asynq server: as many in one call as the server has free slots, and the next one
// with the acknowledgement of the one before it.
//
// asynq fetches one task at a time, on one goroutine, with a round trip for each; that bounds a server, whatever its
// concurrency. An [Intake] makes one script of the acknowledgement and the fetch, and keeps the tasks that it brings in
// memory until asynq asks for them, which is as soon as its slot is free. A task in memory is active in Redis like one
// that asynq has fetched itself; one that asynq does not ask for within a tenth of a second is put back at the head of
// its queue.
//
// A lost reply strands nothing. Each call has a name of its own, and the tasks that it takes have runs of that name, so
// that a repetition finds them. go-redis never sends such a call twice: an acknowledgement is repeated by the Intake
// until it is answered, and takes effect in that run of the task alone; a fetch is recalled by its name, after which it
// takes nothing if it arrives late.
package intake
