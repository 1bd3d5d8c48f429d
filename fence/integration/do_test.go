package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"

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
