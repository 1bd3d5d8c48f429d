package pglock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/locking"
)

const inTxSQL = "SELECT id, database, isolation, found " +
	"FROM railtoken.in_tx($1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea[], " +
	"$3::pg_catalog.text::bigint[], $4::bigint)"

// InTx ties a transaction to a lease of this package: the transaction commits before any later holder of a key of the
// lease gets it, or not at all. Call it first in the transaction, before its reads and outside of savepoints, because
// the rollback of a savepoint undoes it. Release the lease after the commit: until then a release waits, and a
// [locking.Gate] could hand the lease off. Renewals go on in the meantime.
//
// InTx returns an error that matches [locking.ErrLost] if the lease was lost, or [locking.ErrReleased] after its Release.
// Then nothing may be written: roll back.
// The error matches [ErrTransaction] if the transaction cannot hold the lease: it is read-only, or on another database,
// or the lease is from another kind of Locker.
//
// At READ COMMITTED, PostgreSQL's default, later statements of the transaction see all that earlier holders have
// committed. At REPEATABLE READ and SERIALIZABLE, they see only what was committed before the first statement of the
// transaction: begin the transaction after the lease was acquired, and make InTx its first statement. Otherwise InTx
// reports ErrTransaction, except for a lease that a Gate has handed off, because even an old snapshot shows the rows of
// such a lease. At these levels InTx may also fail with SQLSTATE 40001 because the lease was renewed in the same
// instant: roll back and try again.
//
// A holder whose process is stopped during the transaction keeps its keys until the transaction ends. Therefore InTx
// sets idle_in_transaction_session_timeout to the TTL of the lease for this transaction, unless the timeout is already
// shorter: the server ends a transaction whose client sends nothing for that long.
func InTx(ctx context.Context, tx *sql.Tx, lease *locking.Lease) error {
	if tx == nil || lease == nil {
		return fmt.Errorf("%w: InTx needs a transaction and a lease", ErrTransaction)
	}
	if err := lease.Err(); err != nil {
		return err
	}
	grants, err := grantsOf(lease)
	if err != nil {
		return err
	}
	var keys, owners [][]byte
	var fences []string
	ttl := grants[0].ttl
	for _, g := range grants {
		ttl = min(ttl, g.ttl)
		for i, form := range g.stored.forms {
			keys, owners = append(keys, form), append(owners, g.owner)
			fences = append(fences, strconv.FormatInt(g.tokens[g.stored.places[i]], 10))
		}
	}
	var in installation
	var isolation string
	var found int
	err = tx.QueryRowContext(ctx, inTxSQL, array(keys), array(owners), "{"+strings.Join(fences, ",")+"}", ttl.Milliseconds()).
		Scan(&in.id, &in.database, &isolation, &found)
	switch {
	case isMissing(err) || errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: it is on a database without the schema railtoken: begin it on that of the locks: %w",
			ErrTransaction, err)
	case codeOf(err) == readOnly:
		return fmt.Errorf("%w: it is read-only: begin one that writes: %w", ErrTransaction, err)
	case err != nil:
		return fmt.Errorf("pglock: InTx: %w", err)
	case in != grants[0].store.in:
		return fmt.Errorf("%w: it is on the database %q, the lease on %q: begin it on that of the locks",
			ErrTransaction, in.database, grants[0].store.in.database)
	case found == len(keys):
		return lease.Err()
	case isolation == "read committed" || isolation == "read uncommitted":
		return &locking.LostError{Keys: lease.Keys(), Reason: locking.LossTaken}
	}
	// The lease may be lost, or is newer than what the transaction sees. Only a renewal can tell.
	if err := lease.Renew(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: it is %s, and began before the lease: begin it after Acquire, with InTx as its first statement",
		ErrTransaction, isolation)
}

var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// grantsOf returns the grants of a lease, of which there are several if it was joined of several leases.
func grantsOf(lease *locking.Lease) ([]*grant, error) {
	var grants []*grant
	for _, some := range locks.Grants(lease) {
		g, ok := some.(*grant)
		if !ok {
			return nil, fmt.Errorf("%w: the lease of %q is not from pglock: acquire it from a Locker of pglock.New",
				ErrTransaction, lease.Keys())
		}
		if len(grants) > 0 && g.store.in != grants[0].store.in {
			return nil, fmt.Errorf("%w: the lease of %q is on two databases", ErrTransaction, lease.Keys())
		}
		grants = append(grants, g)
	}
	return grants, nil
}
