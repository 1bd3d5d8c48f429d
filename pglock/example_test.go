package pglock_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// A migration tool can run the statements that create the schema.
func ExampleSchema() {
	fmt.Println(strings.Contains(pglock.Schema(), "CREATE SCHEMA IF NOT EXISTS railtoken;"))
	// Output: true
}

// transfer moves cents from one account to another. It reads and writes in a transaction that commits together with the
// lease of both accounts, so no other holder can come in between.
func transfer(ctx context.Context, db *sql.DB, locker locking.Locker, from, to string, cents int) error {
	return locking.Do(ctx, locker, []string{"account:" + from, "account:" + to}, locking.Options{},
		func(ctx context.Context, lease *locking.Lease) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := pglock.InTx(ctx, tx, lease); err != nil { // first, before anything is read
				return err
			}
			var has int
			if err := tx.QueryRowContext(ctx, "SELECT cents FROM accounts WHERE id = $1", from).Scan(&has); err != nil {
				return err
			}
			if has < cents {
				return fmt.Errorf("account %s has %d cents only", from, has)
			}
			for id, change := range map[string]int{from: -cents, to: cents} {
				if _, err := tx.ExecContext(ctx, "UPDATE accounts SET cents = cents + $1 WHERE id = $2", change, id); err != nil {
					return err
				}
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			lease.MarkCommitted() // a lease that is lost from now on does not matter
			return nil
		})
}

// A business transaction that holds its locks until it has committed.
func ExampleInTx() {
	run := func(ctx context.Context, url string) error {
		db, err := sql.Open("pgx", url)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := pglock.Create(ctx, db); err != nil {
			return err
		}
		locker, err := pglock.New(ctx, db, pglock.Options{Listen: url})
		if err != nil {
			return err
		}
		defer locker.Close()
		gate := locking.NewGate(locker, locking.GateOptions{})
		return transfer(ctx, db, gate, "alice", "bob", 500) // above
	}
	fmt.Println(run(context.Background(), "postgres://nobody@127.0.0.1:1/none?sslmode=disable") != nil) // no server is there
	// Output: true
}

func TestTheExampleMovesMoney(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, "CREATE TABLE accounts AS SELECT id, 1000 AS cents FROM (VALUES ('alice'), ('bob')) AS v (id)")
	l := d.locker(t, pglock.Options{})
	if err := transfer(t.Context(), d.open(t), l, "alice", "bob", 700); err != nil {
		t.Fatal(err)
	}
	if err := transfer(t.Context(), d.open(t), l, "alice", "bob", 700); err == nil {
		t.Error("money that is not there was moved")
	}
	var cents int
	if err := d.open(t).QueryRowContext(t.Context(), "SELECT cents FROM accounts WHERE id = 'bob'").Scan(&cents); err != nil || cents != 1700 {
		t.Errorf("bob has %d cents, error %v", cents, err)
	}
}
