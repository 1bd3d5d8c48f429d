// Package items runs tasks that are made of many items, each under its own lock.
//
// A warehouse run that allocates forty orders is one task. Each order is an item: it has its own keys, lease and fencing
// token, and is locked only while it is worked on. An order that an audit holds does not stop the others. The handler's
// [Policy] decides what happens to it: the task finishes it later, or goes on without it and reports it.
//
// [New] makes a handler for a server with package attach, and worker.HandleItems one for a worker:
//
//	handler, err := items.New(rt, items.Handler[plan, order]{Split: ordersOf, ItemKeys: keysOf, Run: allocate})
//	mux.Handle("run:allocate", handler)
//
// [Of] reads the progress of a task from outside, and [Replay] runs its failed items again.
//
// # A run
//
// Handler.Split divides the payload into items, which are identified by their index. A run locks Handler.Keys, if there
// are any, and then the keys of as many items as it can run, in few calls to Redis. It never waits for the keys of an
// item, so that two tasks of items cannot deadlock, whatever their keys. An item that is refused is tried once more after
// the others.
//
// When no item can run and some were refused, the task is parked on their keys: on the eight that have been held for the
// shortest time, which are likely to be released first, if there are more. A parked task holds nothing and occupies no
// slot. The first release of one of these keys wakes it, and it goes on with the refused items. Items that have failed
// wait for asynq's retry. Waiting does not use up a retry. The limits of the handler's middleware.Requeue apply; those on
// age, conflicts and waiters are about the key that was expected first.
//
// An item that fails is tried again when asynq retries the task, which costs one retry for all items that have failed.
// When no item is left to run, Handler.Finish decides the outcome. By default a task with failed or refused items is
// archived with an [Error]. Its result (asynq.TaskInfo.Result) is then the [Report], even if Finish lets the task succeed;
// asynq keeps the result of a successful task only for its Retention.
//
// asynq.Timeout and asynq.Deadline limit a run, not an item. Items that they interrupt run again, and those that are done
// do not. When the server shuts down, no further item begins, and the task continues on another server.
//
// # Guarantees
//
// Each item runs at least once, and never again once its result is saved. Results are saved within 10 ms while other
// items run, and before the task is parked or ends. If a worker is killed, the items that were running or not saved yet
// run again. To make an item take effect exactly once, record the task's ID and [Index] in the transaction that writes
// the effect, and let the database check the fencing token of the item's key (fence.From).
//
// Finish is called after all results are saved. It runs again if it fails or its worker is killed.
//
// Items run in no particular order unless Handler.Sequential is set. Two items with a key in common run one after the
// other.
//
// # Progress
//
// The progress is kept in asynq's own hash of the task, and is deleted with it: a bit for each item that is done, and a
// record for each that failed, or was skipped or refused. A task whose Split returns a different number of items than
// before, or items with different keys, is archived with an error that matches [ErrSplit], and its progress stays. The
// server's ErrorHandler gets that error; asynq keeps its text (asynq.TaskInfo.LastErr).
package items
