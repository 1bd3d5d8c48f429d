// Package inspect shows from outside of the workers who holds a key, who waits for it, and what the workers and the
// lock servers are doing.
//
//	i, err := inspect.New(inspect.Options{Tasks: client}) // asynq's Redis; here the locks are there, too
//	...
//	state, err := i.Look(ctx, "order:1042", 10)
//
// Reading needs no more than a Redis user who may read. Package delayqueue has the waiting tasks: [Inspector.Queue].
//
// # Reports
//
// No list of held keys exists in Redis, because it would cost a write for each lock. Instead each worker reports every
// 5 s what its tasks hold. [Inspector.Held] and [Inspector.Workers] read the reports; [Inspector.Look] reads the lock
// itself, and the report for the name of the task; [Inspector.Scan] finds locks that no worker reports.
//
// # Freeing a key
//
// [Inspector.Depose] takes a key from a holder that hangs. Unlike deleting the lock, this is safe: the holder is told,
// cannot get the lock back, and can be refused by the database (Floor) before the next holder comes. [Inspector.Audit]
// lists who has done so, and why.
package inspect
