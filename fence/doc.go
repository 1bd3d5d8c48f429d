// Package fence lets a resource refuse a late writer: a lock holder that was stopped for longer than its lease, and
// that writes after the next holder has begun. It is for databases (database/sql), Redis, HTTP services and object
// stores.
//
// A lock with a time limit cannot stop such a writer, and neither can a check in the program that holds it. But each
// lease has a fencing token that is larger than those of all earlier leases of its key, so a resource that keeps the
// largest token can refuse smaller ones. This package keeps the token, in a transaction with the data.
//
// # How to use it
//
// In a handler under middleware.Lock, [From] returns the token of a key, and [SQL.Do] runs a transaction under it:
//
//	guard := fence.SQL{Dialect: fence.Postgres} // its table: guard.DDL()
//
//	taskID, _ := asynq.GetTaskID(ctx)
//	token, err := fence.From(ctx, key)
//	if err != nil {
//		return err
//	}
//	err = guard.Do(ctx, db, []fence.Token{token}, func(tx *sql.Tx) error {
//		if err := guard.Once(ctx, tx, token, taskID); err != nil {
//			return err
//		}
//		// read, compute and write; a late holder does not get here
//		return nil
//	})
//	if err != nil && !errors.Is(err, fence.ErrApplied) {
//		return err // also ErrFenced: the task runs again, under a new lease
//	}
//	if lease, ok := locking.FromContext(ctx); ok {
//		lease.MarkCommitted() // the work is done, even if the lease is lost from now on
//	}
//	return nil
//
// Do claims first: it raises the stored token, and fails with [ErrFenced] if the stored token is already larger. This
// is what saves a read-modify-write: after the claim, earlier holders can no longer write, so what this holder reads
// stays true until it writes. A check on the write alone lets an earlier holder write between the read and the write of
// the next one, which then overwrites the earlier write.
//
// [SQL.Once] marks an operation as applied, in the same transaction, so that it has no second effect if the task runs
// again because its lease or the report of its end was lost.
//
// After the last transaction, call the MarkCommitted method of the lease. Otherwise a task that loses its lease before
// its handler returns counts as failed and runs again, although its work is committed. Do cannot make this call,
// because more work may follow, and the loss of the lease must still stop that work.
//
// A handler returns [ErrFenced] like any other error. The later holder may be another task, so the work is not done:
// asynq counts a failure and runs the task again, under a new lease with a larger token. For [ErrApplied], which says
// that an earlier run did the work, the handler returns nil.
//
// A task that works for a long time between its read and its write uses two transactions: [SQL.Claim] and the reads in
// the first, [SQL.Check] and the writes in the second.
//
// [Row] keeps the token in a column of the guarded row instead of a table. [Redis] guards data in Redis, [Transport] and
// [Handler] carry tokens over HTTP to a service that checks them, and [PutFenced] writes objects to a store with ETags.
//
// # What it cannot do
//
// Every writer must claim and check: a statement that skips this is not refused. An effect outside of the resource,
// such as an e-mail, cannot be fenced. The resource must keep its tokens (see [SQL.Prune]): restore them together with
// the data that they guard.
package fence
