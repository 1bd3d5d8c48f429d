// Package pglock keeps the locks of package locking in PostgreSQL, in the database that holds the rows they protect.
//
//	import _ "github.com/jackc/pgx/v5/stdlib"       // or any other driver
//
//	db, err := sql.Open("pgx", url)                 // a pool of its own
//	err = pglock.Create(ctx, db)                    // or run the SQL of pglock.Schema in a migration
//	locker, err := pglock.New(ctx, db, pglock.Options{Listen: url})
//	defer locker.Close()
//	rt, err := attach.New(rdb, cfg, attach.Options{Locker: locker}) // for asynq's tasks, which stay on Redis
//
// pgx parses Options.Listen, whatever the driver of the pool. A caller that tries to lock a key that its own lease
// already holds gets locking.ErrReentrant, with or without a Gate.
//
// A lock is a row with an owner, an end and a fencing token. Unless it is renewed, it expires, and only the database's
// clock decides when. A key may contain any bytes. Several keys are taken in one call, together or not at all, and
// callers never deadlock.
//
// # What it adds to a lock on Redis
//
// [InTx] puts the check of the lease into the transaction that it protects. Lock and effect then commit together: a
// holder that was stopped for longer than its TTL cannot write after the next one has begun, however late it continues.
// No fencing token has to be checked. This also holds after a failover: a replica that has lost the most recent leases
// has also lost the writes that were made under them.
//
//	lease, err := locking.Wait(ctx, gate, []string{"account:7"}, locking.Options{})
//	defer lease.Release(ctx)
//	tx, err := db.BeginTx(ctx, nil)
//	defer tx.Rollback()
//	err = pglock.InTx(ctx, tx, lease)               // first, before anything is read
//	// read and write the account
//	err = tx.Commit()
//
// Tokens ([locking.Lease.Fence]) come from a sequence, for resources outside the database. They grow for each key, even
// after its row was deleted. After a failover to a replica that lags behind, or after a backup was restored, the
// sequence may go back: use a synchronous replica, or raise railtoken.fence with setval, if other stores check the
// tokens.
//
// # Waiting
//
// A waiting caller polls at least every half second. With Options.Listen it is also notified of each release that it
// has subscribed to, through one LISTEN session per Locker. A notification is a hint, and a lost one costs only time.
//
// # Looking from outside
//
// Package inspect, the railtoken command and the admin page do not read this database. They show the holder of a key if
// it is a task, as its worker reports it every 5 s, and cannot depose it. The view railtoken.held lists all locks,
// with the labels of their holders. A holder that hangs loses its key once its process has been stopped and its TTL has
// passed. Deleting its row there frees the key at once; the holder is told at its next renewal, and its [InTx] fails.
//
// # Poolers
//
// Every call is one statement, so PgBouncer in transaction mode may stand in front of the database. Options.Listen must
// bypass it. The driver must not refer to prepared statements that another session lacks: set
// default_query_exec_mode=exec with pgx, binary_parameters=yes with lib/pq, or use PgBouncer 1.21 or later with
// max_prepared_statements. Session-level locks (pg_advisory_lock) do not work there: two holders may share a session.
//
// # Cost
//
// Acquire and Renew each take one round trip and wait for one flush of PostgreSQL's log, because a lease that was lost
// in a crash would let a second holder in: that flush is the floor, often 0.5 to 2 ms. Release takes one round trip and
// waits for no flush, because a lock whose release was lost in a crash ends with its TTL. So a pair costs less than
// inserting and deleting a row by hand, which waits for two flushes. With its files in memory PostgreSQL takes twice as
// long for a pair as for such a row, and three to five times as long as for an advisory lock, which writes nothing, has
// no token, and is gone with its session. A pair costs the same beside a transaction that stays open, which keeps
// PostgreSQL from removing old rows. Where callers of one process want the same key, a [locking.Gate] hands the
// lease off from one to the next without PostgreSQL, which is several times faster than advisory locks.
//
// # Failures
//
// While the database cannot be reached, attempts return [locking.ErrUnavailable] within 5 s, and leases last until
// their TTL ends. They survive a restart and a crash of the server. An attempt or a release that was not answered is
// undone or repeated in the background, within a second or two after the database answers again. If the clock of the database's machine is set forward, leases end early, and
// only [InTx] and tokens keep a former holder from writing. If it is set back, a key that a crashed holder has left
// becomes free one TTL after the first refused attempt. The rows of keys that are not in use are deleted by all
// lockers, a few after some hundred releases and once a minute.
package pglock
