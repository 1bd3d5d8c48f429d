package integration

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/fence"
)

// holder writes as the holder of a lock does: it claims in one transaction and writes in the next.
func (b *bench) holder(n int64, between func()) {
	b.t.Helper()
	must(b.t, b.claim(token(n)))
	between()
	must(b.t, b.in(func(tx *sql.Tx) error {
		if err := b.Check(b.t.Context(), tx, token(n)); err != nil {
			return err
		}
		_, err := tx.ExecContext(b.t.Context(), "UPDATE stock SET pieces = pieces + 1 WHERE id = 1")
		return err
	}))
}

// A transaction that reads before its claim would work on what it has read, or on its snapshot: older than the claim.
func TestAClaimAfterAnOldSnapshotIsRefused(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		for _, level := range s.snapshots {
			t.Run(level.String(), func(t *testing.T) {
				b := newBench(t, s.dialect, s.open(t))
				var late *sql.Tx
				read := func() {
					late = b.begin(level)
					b.pieces(late)
				}
				// The other holder claims and writes after the read.
				read()
				b.holder(10, func() {})
				expect(t, "the claim of a key without a token", b.Claim(t.Context(), late, token(20)), fence.ErrRetry)
				must(t, late.Rollback())
				// It has claimed before the read, and writes after it.
				b.holder(11, read)
				expect(t, "the claim", b.Claim(t.Context(), late, token(20)), fence.ErrRetry)
				must(t, late.Rollback())
				// The same for a check, by a holder that was stopped.
				must(t, b.claim(token(12)))
				read()
				must(t, b.claim(token(12)))
				expect(t, "the check", b.Check(t.Context(), late, token(12)), fence.ErrRetry)
				must(t, late.Rollback())
				// As the first statement the claim is good, and the transaction reads what the last holder has written.
				late = b.begin(level)
				must(t, b.Claim(t.Context(), late, token(20)))
				if n := b.pieces(late); n != 2 {
					t.Errorf("it reads %d, want 2", n)
				}
				must(t, late.Commit())
			})
		}
	})
}

// The same for a column of the guarded row, as far as this row has changed.
func TestARowClaimAfterAnOldSnapshotIsRefused(t *testing.T) {
	each(t, func(t *testing.T, _ *bench, s store) {
		for _, level := range s.snapshots {
			t.Run(level.String(), func(t *testing.T) {
				b := newBench(t, s.dialect, s.open(t))
				row := fence.Row{Dialect: s.dialect, Table: "stock"}
				must(t, b.in(func(tx *sql.Tx) error { return row.Claim(t.Context(), tx, token(10), 1) }))
				late := b.begin(level)
				b.pieces(late)
				must(t, b.in(func(tx *sql.Tx) error {
					must(t, row.Check(t.Context(), tx, token(10), 1))
					_, err := tx.ExecContext(t.Context(), "UPDATE stock SET pieces = 5 WHERE id = 1")
					return err
				}))
				expect(t, "the claim", row.Claim(t.Context(), late, token(11), 1), fence.ErrRetry)
			})
		}
	})
}

// Do claims first, so at any level it reads what the last holder has written, and repeats what lost a race.
func TestDoReadsTheLastWriteAtAnyLevel(t *testing.T) {
	each(t, func(t *testing.T, b *bench, s store) {
		for i, level := range append(slices.Clone(s.snapshots), sql.LevelDefault) {
			guard := b.SQL
			guard.Isolation = level
			n := int64(100 * (i + 1))
			before := b.pieces(b.db)
			b.holder(n, func() {})
			must(t, guard.Do(t.Context(), b.db, []fence.Token{token(n + 1)}, func(tx *sql.Tx) error {
				if got := b.pieces(tx); got != before+1 {
					t.Errorf("it reads %d, want %d", got, before+1)
				}
				return nil
			}))
		}
	})
}

// SQLite begins a deferred transaction without the writer's lock. One that reads first cannot write after another has.
func TestSQLiteRefusesDeferredTransactionsWithTheRemedy(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, fence.SQLite, sqlite(journal, "deferred")(t))
			late := b.begin(sql.LevelDefault)
			b.pieces(late)
			if journal == "WAL" {
				b.holder(10, func() {})
				err := b.Claim(t.Context(), late, token(11))
				expect(t, "the claim", err, fence.ErrRetry)
				if !strings.Contains(err.Error(), "_txlock=immediate") {
					t.Errorf("the error has no remedy: %v", err)
				}
			} else {
				must(t, b.Claim(t.Context(), late, token(11))) // readers keep others from writing, so what it has read is still there
			}
			must(t, late.Rollback())
			must(t, b.Do(t.Context(), b.db, []fence.Token{token(12)}, nil)) // which claims first
		})
	}
}

// Two deferred transactions that have read block each other, whatever the busy_timeout.
func TestBusyDatabasesAreToldFromFences(t *testing.T) {
	t.Parallel()
	path := "file:" + filepath.Join(t.TempDir(), "busy.db") + "?_pragma=busy_timeout(1)&_txlock=immediate"
	b := newBench(t, fence.SQLite, open(t, "sqlite", path))
	first := b.begin(sql.LevelDefault)
	must(t, b.Claim(t.Context(), first, token(1)))
	_, err := b.db.BeginTx(t.Context(), nil)
	if err == nil || !fence.Retryable(err) {
		t.Errorf("a second writer: %v", err)
	}
}
