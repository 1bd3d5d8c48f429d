package integration

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railtoken/railtoken/fence"
)

var errMine = errors.New("mine")

func TestDoCommitsOnlyOnSuccess(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		write := func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "UPDATE stock SET pieces = pieces + 1 WHERE id = 1")
			return err
		}
		must(t, b.Do(t.Context(), b.db, []fence.Token{token(5)}, write))
		err := b.Do(t.Context(), b.db, []fence.Token{token(6)}, func(tx *sql.Tx) error { return errors.Join(write(tx), errMine) })
		expect(t, "a function that fails", err, errMine)
		func() {
			defer func() { _ = recover() }()
			_ = b.Do(t.Context(), b.db, []fence.Token{token(7)}, func(tx *sql.Tx) error { _ = write(tx); panic("mine") })
		}()
		if n := b.pieces(b.db); n != 1 {
			t.Errorf("%d writes are committed", n)
		}
		must(t, b.check(token(5))) // the claims of those that failed are undone
		called := false
		err = b.Do(t.Context(), b.db, []fence.Token{token(4)}, func(*sql.Tx) error { called = true; return nil })
		expect(t, "an earlier token", err, fence.ErrFenced)
		if called {
			t.Error("the function ran without a claim")
		}
	})
}

func TestDoRepeatsATransactionThatLostARace(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		runs := 0
		must(t, b.Do(t.Context(), b.db, []fence.Token{token(1)}, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), "UPDATE stock SET pieces = pieces + 1 WHERE id = 1"); err != nil {
				return err
			}
			runs++
			if runs < 3 {
				return fence.ErrRetry
			}
			return nil
		}))
		if n := b.pieces(b.db); runs != 3 || n != 1 {
			t.Errorf("%d runs, of which %d are committed", runs, n)
		}
	})
}

func TestDoEndsWithTheCauseOfItsContext(t *testing.T) {
	each(t, func(t *testing.T, b *bench, _ store) {
		ctx, cancel := context.WithCancelCause(t.Context())
		err := b.Do(ctx, b.db, []fence.Token{token(1)}, func(*sql.Tx) error { cancel(errMine); return fence.ErrRetry })
		expect(t, "a lease that was lost", err, errMine)
		expect(t, "the claim", b.check(token(1)), fence.ErrUnclaimed)
	})
}

// SQLite in a mode in which readers hold up a commit leaves the transaction of a failed commit open. It must not come to
// light with the next user of the connection.
func TestAFailedCommitOfSQLiteWritesNothing(t *testing.T) {
	t.Parallel()
	source := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_txlock=immediate&_pragma=journal_mode(DELETE)&_pragma=busy_timeout(20)"
	b := newBench(t, fence.SQLite, open(t, "sqlite", source))
	b.db.SetMaxOpenConns(1)
	other := open(t, "sqlite", "file:"+strings.TrimPrefix(strings.Split(source, "?")[0], "file:"))
	reader, err := other.BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, reader.QueryRowContext(t.Context(), "SELECT pieces FROM stock WHERE id = 1").Scan(&n))

	write := func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE stock SET pieces = pieces + 1 WHERE id = 1")
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := b.Do(ctx, b.db, []fence.Token{token(5)}, write); err == nil {
		t.Error("a commit passed a reader")
	}
	must(t, reader.Rollback())
	if n := b.pieces(b.db); n != 0 {
		t.Errorf("%d writes of a failed commit are there", n)
	}
	must(t, b.Do(t.Context(), b.db, []fence.Token{token(6)}, write))
	if n := b.pieces(other); n != 1 {
		t.Errorf("%d writes are committed, want 1", n)
	}
}
