package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
	"github.com/railtoken/railtoken/pglock"
)

// begin begins a transaction, rolled back at the end of the test.
func (d database) begin(t *testing.T, opts *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.open(t).BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (d database) exec(t *testing.T, query string) {
	t.Helper()
	if _, err := d.open(t).ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func (d database) total(t *testing.T) (total int) {
	t.Helper()
	if err := d.open(t).QueryRowContext(t.Context(), "SELECT total FROM totals").Scan(&total); err != nil {
		t.Fatal(err)
	}
	return total
}

func acquire(t *testing.T, l locking.Locker, opts locking.Options, keys ...string) *locking.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

func TestInTxRefusesALostLease(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		lease := acquire(t, l, locking.Options{}, "a", "b")
		expire(t, d.open(t), "b")
		tx := d.begin(t, &sql.TxOptions{Isolation: level})
		if err := pglock.InTx(t.Context(), tx, lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%v: a lease of which one key has expired: %v, want ErrLost", level, err)
		}
		_ = tx.Rollback()
		_ = lease.Release(t.Context())
		if err := pglock.InTx(t.Context(), d.begin(t, nil), lease); err == nil {
			t.Errorf("%v: a released lease is taken", level)
		}
	}
}

func TestInTxLetsRenewalsPass(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	lease := acquire(t, d.locker(t, pglock.Options{}), locking.Options{}, "a", "b")
	if err := pglock.InTx(t.Context(), d.begin(t, nil), lease); err != nil {
		t.Fatal(err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renewal while a transaction holds the lease: %v", err)
	}
}

func TestInTxTakesLeasesOfAGateAndJoinedOnes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	gated := acquire(t, locking.NewGate(l, locking.GateOptions{}), locking.Options{}, "gated")
	tx := d.begin(t, nil)
	if err := pglock.InTx(t.Context(), tx, gated); err != nil {
		t.Errorf("a lease of a gate: %v", err)
	}
	parts := []*locking.Lease{acquire(t, l, locking.Options{}, "one"), acquire(t, l, locking.Options{}, "two", "three")}
	joined, err := locking.Join(t.Context(), parts, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pglock.InTx(t.Context(), tx, joined); err != nil {
		t.Errorf("a joined lease in the same transaction: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}

func TestInTxRefusesUnfitTransactions(t *testing.T) {
	t.Parallel()
	d, other := newDatabase(t), newDatabase(t)
	empty := database{d.server, "", d.server.URL(d.server.Database(t))}
	l := d.locker(t, pglock.Options{})
	lease := acquire(t, l, locking.Options{}, "key")
	early := d.begin(t, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if _, err := early.ExecContext(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	late := acquire(t, l, locking.Options{}, "late")
	foreign := acquire(t, locking.New(otherBackend{}), locking.Options{}, "key")
	for name, tt := range map[string]struct {
		tx    *sql.Tx
		lease *locking.Lease
		says  string
	}{
		"read-only":             {d.begin(t, &sql.TxOptions{ReadOnly: true}), lease, "read-only"},
		"another database":      {other.begin(t, nil), lease, other.name},
		"without the schema":    {empty.begin(t, nil), lease, "without the schema"},
		"older than the lease":  {early, late, "began before the lease"},
		"another kind of lease": {d.begin(t, nil), foreign, "not from pglock"},
		"no transaction":        {nil, lease, "needs a transaction"},
		"no lease":              {d.begin(t, nil), nil, "needs a transaction and a lease"},
	} {
		err := pglock.InTx(t.Context(), tt.tx, tt.lease)
		if !errors.Is(err, pglock.ErrTransaction) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want ErrTransaction that says %q", name, err, tt.says)
		}
		if errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: the error says that the lease is lost", name)
		}
	}
}

func TestInTxAcceptsEachIsolationLevel(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	lease := acquire(t, d.locker(t, pglock.Options{}), locking.Options{TTL: 7 * time.Second}, "key")
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx := d.begin(t, &sql.TxOptions{Isolation: level})
		if err := pglock.InTx(t.Context(), tx, lease); err != nil {
			t.Errorf("%v: %v", level, err)
		}
		var limit string
		if err := tx.QueryRowContext(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&limit); err != nil || limit != "7s" {
			t.Errorf("%v: an idle transaction is ended after %s (error %v), want the TTL", level, limit, err)
		}
	}
	tx := d.begin(t, nil)
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = '3s'"); err != nil {
		t.Fatal(err)
	}
	if err := pglock.InTx(t.Context(), tx, lease); err != nil {
		t.Fatal(err)
	}
	var limit string
	if err := tx.QueryRowContext(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&limit); err != nil || limit != "3s" {
		t.Errorf("a shorter limit became %s (error %v)", limit, err)
	}
}

// otherBackend grants everything.
type otherBackend struct{}

func (otherBackend) Acquire(context.Context, backend.Request) (backend.Grant, error) {
	return otherGrant{}, nil
}

type otherGrant struct{}

func (otherGrant) Fence(context.Context, int) (int64, error)  { return 1, nil }
func (otherGrant) Renew(context.Context, time.Duration) error { return nil }
func (otherGrant) Release(context.Context) (bool, error)      { return false, nil }
