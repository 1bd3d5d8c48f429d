package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/locktaskstest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// Tasks are on Redis, locks and totals in PostgreSQL. Each task reads the total of its account and writes it back in a
// transaction of the least isolation, so one that is not excluded shows.
func TestTasksOnRedisAreLockedInPostgres(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, "CREATE TABLE accounts AS SELECT chr(97 + i) AS id, 0 AS total FROM generate_series(0, 2) AS i")
	db := d.open(t)
	db.SetMaxOpenConns(16)
	locker := func() locking.Locker { return d.locker(t, pglock.Options{Listen: d.url}) }
	const tasks = 60
	locktaskstest.Run(t, tasks, locker, func(ctx context.Context, account string) error {
		lease, ok := locking.FromContext(ctx)
		if !ok {
			return errors.New("the task runs without a lease")
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := pglock.InTx(ctx, tx, lease); err != nil {
			return err
		}
		var total int
		if err := tx.QueryRowContext(ctx, "SELECT total FROM accounts WHERE id = $1", account).Scan(&total); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET total = $1 WHERE id = $2", total+1, account); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		lease.MarkCommitted()
		return nil
	})
	var sum int
	if err := db.QueryRowContext(t.Context(), "SELECT sum(total) FROM accounts").Scan(&sum); err != nil || sum != tasks {
		t.Errorf("the totals are %d (error %v) after %d tasks", sum, err, tasks)
	}
}

func TestHoldersInPostgresAreInspected(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	locktaskstest.Inspect(t, "pglock", func() locking.Locker { return d.locker(t, pglock.Options{Listen: d.url}) })
}

func TestServersOnSeparateDatabasesAreRefused(t *testing.T) {
	t.Parallel()
	d, other := newDatabase(t), newDatabase(t)
	again := newLocker(t, open(t, strings.Replace(d.url, "127.0.0.1", "localhost", 1)+"&application_name=again"), pglock.Options{Listen: d.url})
	locktaskstest.Separate(t, d.locker(t, pglock.Options{}), again, other.locker(t, pglock.Options{}))
}

// The database refuses the late write of a task that was superseded, in a transaction.
func TestASupersededTaskWritesNothingLateToPostgres(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	guard, db := fence.SQL{Dialect: fence.Postgres}, d.open(t)
	d.exec(t, guard.DDL())
	d.exec(t, "CREATE TABLE accounts (total int)")
	d.exec(t, "INSERT INTO accounts VALUES (0)")
	locktaskstest.Supersede(t, func() locking.Locker { return d.locker(t, pglock.Options{Listen: d.url}) },
		func(ctx context.Context, token fence.Token) error {
			return guard.Do(ctx, db, []fence.Token{token}, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET total = total + 1")
				return err
			})
		})
	var total int
	if err := db.QueryRowContext(t.Context(), "SELECT total FROM accounts").Scan(&total); err != nil || total != 1 {
		t.Errorf("the total is %d, %v", total, err)
	}
}
