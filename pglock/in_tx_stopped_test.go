//go:build unix

package pglock_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// A holder reads a total, is stopped for twice its TTL, and then writes it and commits. In the meantime another holder
// adds 1. With InTx one of the two happens after the other, or fails; without it the first one overwrites the second.
func TestAStoppedHolderCommitsFirstOrNever(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		inTx      bool
		committed bool // by the child
		total     int
	}{
		{name: "in tx", inTx: true, total: 1},
		{name: "control without", committed: true, total: 1}, // although two have committed
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			d.exec(t, "CREATE TABLE totals AS SELECT 0 AS total")
			c := startChild(t, d.url, tt.inTx)
			c.Signal(t, syscall.SIGSTOP)
			stopped := time.Now()
			l := d.locker(t, pglock.Options{})
			lease, err := locking.Wait(t.Context(), l, []string{"total"}, locking.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(stopped); tt.inTx && waited > 10*childTTL {
				t.Errorf("a stopped holder kept its key for %v", waited)
			}
			add(t, d, lease)
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			<-time.After(time.Until(stopped.Add(2 * childTTL)))
			c.Signal(t, syscall.SIGCONT)
			c.Tell(t, "commit")
			if line := c.Says(t); (line == "committed") != tt.committed || line != "committed" && !strings.HasPrefix(line, "failed") {
				t.Errorf("the child says %q", line)
			}
			if total := d.total(t); total != tt.total {
				t.Errorf("the total is %d, want %d", total, tt.total)
			}
		})
	}
}

// A transaction that another statement keeps busy is not idle, so the server does not end it: the key stays locked,
// however long ago the TTL ended.
func TestAnOpenTransactionKeepsItsKey(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, "CREATE TABLE totals AS SELECT 0 AS total")
	l := d.locker(t, pglock.Options{})
	const hold = 5 * time.Second // long enough for a busy machine to begin the transaction
	lease, err := l.Acquire(t.Context(), []string{"total"}, locking.Options{TTL: hold, MaxHold: hold})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(t.Context()) }()
	tx := d.begin(t, nil)
	if err := pglock.InTx(t.Context(), tx, lease); err != nil {
		t.Fatal(err)
	}
	<-lease.Done()
	if _, err := tx.ExecContext(t.Context(), "SELECT pg_sleep(0.5)"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), []string{"total"}, locking.Options{}); !errors.Is(err, locking.ErrHeld) {
		t.Fatalf("the key of an open transaction: %v, want ErrHeld", err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE totals SET total = total + 1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	next, err := l.Acquire(t.Context(), []string{"total"}, locking.Options{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, d, next)
	if total := d.total(t); total != 2 {
		t.Errorf("the total is %d, want 2", total)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// add adds 1 to the total as a holder does.
func add(t *testing.T, d database, lease *locking.Lease) {
	t.Helper()
	tx := d.begin(t, nil)
	if err := pglock.InTx(t.Context(), tx, lease); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE totals SET total = total + 1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
