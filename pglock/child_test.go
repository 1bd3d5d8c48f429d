package pglock_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// A child is a holder in a process of its own, which a test can stop. The environment names its database, and whether
// it calls InTx.
const (
	childURL  = "PGLOCK_CHILD_URL"
	childInTx = "PGLOCK_CHILD_IN_TX"
	childTTL  = 2 * time.Second
)

// inChild runs the child and reports true in the process of one.
func inChild() bool {
	url := os.Getenv(childURL)
	if url == "" {
		return false
	}
	if err := beHolder(url, os.Getenv(childInTx) != ""); err != nil {
		fmt.Println("failed:", err)
	}
	return true
}

// beHolder adds 1 to the total in a transaction, as a holder that is told when to commit.
func beHolder(url string, inTx bool) error {
	ctx := context.Background()
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	locker, err := pglock.New(ctx, db, pglock.Options{Label: "child"})
	if err != nil {
		return err
	}
	defer locker.Close()
	lease, err := locker.Acquire(ctx, []string{"total"}, locking.Options{TTL: childTTL})
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if inTx {
		if err := pglock.InTx(ctx, tx, lease); err != nil {
			return err
		}
	}
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT total FROM totals").Scan(&total); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE totals SET total = $1", total+1); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	fmt.Println("committed")
	return nil
}

func startChild(t *testing.T, url string, inTx bool) *childtest.Child {
	t.Helper()
	env := []string{childURL + "=" + url}
	if inTx {
		env = append(env, childInTx+"=1")
	}
	c := childtest.Start(t, env...)
	if line := c.Says(t); line != "ready" {
		t.Fatalf("the child says %q", line)
	}
	return c
}
