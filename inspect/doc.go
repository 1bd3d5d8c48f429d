// Package inspect shows, from outside the workers, what holds a key, which tasks wait for it, and what the workers and
// the lock servers are doing.
//
//	i, err := inspect.New(inspect.Options{Tasks: client}) // asynq's Redis, which also has the locks
//	...
//	state, err := i.Look(ctx, "order:1042", 10)
//
// Reading needs only a read-only Redis user. [Inspector.Queue] returns the waiting tasks.
//
// # Reports
//
// Redis has no list of held keys, because that would cost a write for each lock. Instead each worker reports every 5 s
// what its tasks hold. [Inspector.Held] and [Inspector.Workers] read the reports; [Inspector.Look] reads the lock
// itself, and the report for the name of the task; [Inspector.Scan] finds locks that no worker reports.
//
// # Locks in another store
//
// An Inspector reads locks on Redis only. If the locks of the tasks are elsewhere, in PostgreSQL (package pglock), on
// etcd (package etcdlock) or in a Locker of your own, it knows only what the workers report: [Inspector.Look] then
// names the task and the worker that hold a key, up to 5 s late, and [Holder].Backend names the store. Locks taken
// outside of tasks are not seen, Scan finds none, and Depose cannot take such a lock: stop the holder's process, and
// its lock ends with its TTL.
//
// # Freeing a key
//
// [Inspector.Depose] takes a key on Redis from a holder that hangs. Unlike deleting the lock, this is safe: the holder is
// told, cannot get the lock back, and can be refused by the database (Floor) before the next holder gets the key.
// [Inspector.Audit] lists who has done so, and why.
package inspect
