package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// How often Do runs a transaction, and the pauses in between.
const (
	maxTries   = 12
	firstPause = 5 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// Do runs fn in a transaction that begins with a claim, and commits it. If the transaction loses a race ([ErrRetry], or
// a failure of fn's own statements for which [Retryable] is true), Do runs it again, up to 12 times with jittered
// pauses of at most 0.5 s. So fn must have no effect besides its transaction, and must return the errors of its
// statements. With a nil fn, Do only claims.
//
// Do returns nil when the transaction is committed. It returns any error of fn unchanged, and then nothing is written.
// If the connection breaks during the commit, the outcome is unknown: with [SQL.Once] in fn it is safe to try again.
// The error matches the cause of ctx if ctx has ended, for example because the lease was lost.
func (s SQL) Do(ctx context.Context, db *sql.DB, tokens []Token, fn func(tx *sql.Tx) error) error {
	if db == nil {
		return invalid("the database is nil")
	}
	pause := firstPause
	for try := 1; ; try++ {
		again, err := s.do(ctx, db, tokens, fn)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("fence: %w: %w", context.Cause(ctx), err)
		}
		if !again {
			return err
		}
		if try == maxTries {
			return fmt.Errorf("%w: it failed %d times: %w", ErrRetry, try, err)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // jitter
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("fence: %w: %w", context.Cause(ctx), err)
		}
		pause = min(2*pause, longPause)
	}
}

// do runs one transaction. again reports whether a failed one may succeed in another run.
func (s SQL) do(ctx context.Context, db *sql.DB, tokens []Token, fn func(tx *sql.Tx) error) (again bool, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: s.Isolation})
	if err != nil {
		return Retryable(err), failure("begin a transaction", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := s.Claim(ctx, tx, tokens...); err != nil {
		return Retryable(err), err
	}
	if fn != nil {
		if err := fn(tx); err != nil {
			return Retryable(err), err
		}
	}
	if err := tx.Commit(); err != nil {
		// SQLite leaves the transaction open when a commit fails as busy, and database/sql does not know.
		return s.Dialect != SQLite && Retryable(err), failure("commit", err)
	}
	return false, nil
}

// Retryable reports whether a transaction that failed with err may succeed when it runs again from its beginning: err
// matches [ErrRetry], or is a serialization failure, a deadlock, a lock timeout or a busy database, as the usual
// drivers report it (pgx and pq; go-sql-driver/mysql; modernc, mattn and ncruces for SQLite).
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrFenced), errors.Is(err, ErrApplied), errors.Is(err, ErrInvalid):
		return false
	case errors.Is(err, ErrRetry):
		return true
	}
	fault, _ := faultOf(err)
	return fault == lostRace || fault == oldSnapshot
}
