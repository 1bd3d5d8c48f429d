package fence

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
)

// DefaultTable is the table of an [SQL] without Table.
const DefaultTable = "railtoken_fence"

// SQL keeps tokens and marks of applied operations in a table of its own, in the database of the guarded rows.
// [SQL.DDL] returns the statement that creates the table. An SQL is a value without state, and safe for concurrent use.
// On PostgreSQL, give Table its schema if other users may create tables in a schema of the search_path.
//
// Claim and Check lock the row of the key until the transaction ends, so that two holders cannot commit at the same
// time. They take several keys in the same order, so that tasks with keys in common do not deadlock.
type SQL struct {
	Dialect Dialect // of the database; has no default
	Table   string  // with or without its schema, spelled as the database stores it; default DefaultTable

	// Isolation of the transactions that Do begins; default is the database's own.
	Isolation sql.IsolationLevel
}

// DDL returns the statement that creates the table if it does not exist. It panics if Dialect or Table is invalid.
func (s SQL) DDL() string {
	table, err := s.table()
	if err == nil {
		err = s.Dialect.known()
	}
	if err != nil {
		panic(err)
	}
	switch {
	case s.Dialect == Postgres:
		return "CREATE TABLE IF NOT EXISTS " + table + ` (
  name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,            -- the business key
  op   pg_catalog.text COLLATE pg_catalog."C" NOT NULL DEFAULT '', -- an operation that has been applied; empty in the row of the token
  n    bigint NOT NULL,                                            -- the largest token that was claimed
  at   pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  PRIMARY KEY (name, op)
)`
	case s.Dialect.mysql():
		return "CREATE TABLE IF NOT EXISTS " + table + ` (
  name    VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,            -- the business key
  op      VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', -- an operation that has been applied; empty in the row of the token
  n       BIGINT NOT NULL,                                                        -- the largest token that was claimed
  version BIGINT NOT NULL DEFAULT 0,                                              -- changes with each claim and check
  at      TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (name, op)
) ENGINE=InnoDB`
	default:
		return "CREATE TABLE IF NOT EXISTS " + table + ` (
  name TEXT NOT NULL,            -- the business key
  op   TEXT NOT NULL DEFAULT '', -- an operation that has been applied; empty in the row of the token
  n    INTEGER NOT NULL,         -- the largest token that was claimed
  at   INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)), -- seconds since 1970
  PRIMARY KEY (name, op)
) WITHOUT ROWID`
	}
}

// Claim raises the stored token of each key to that of the caller. Make Claim the first statement of the transaction
// that reads, because data that was read before may be an earlier holder's work in progress. The same token may be
// claimed again.
//
// The error matches [ErrFenced] if a key has a larger token, and [ErrRetry] if the transaction must run again. After an
// error the caller must roll back.
func (s SQL) Claim(ctx context.Context, tx Tx, tokens ...Token) error {
	return s.each(tx, tokens, "claim", func(table string, sorted []Token) error {
		if s.Dialect.mysql() {
			return s.mysqlClaim(ctx, tx, table, sorted)
		}
		return s.claim(ctx, tx, table, sorted)
	})
}

// Check requires that the stored token of each key is still the caller's. Call it in each later transaction of the same
// lease, before the first write.
//
// The error matches [ErrFenced] if a key has a larger token, [ErrUnclaimed] if it has a smaller one or none, and
// [ErrRetry] if the transaction must run again. After an error the caller must roll back.
func (s SQL) Check(ctx context.Context, tx Tx, tokens ...Token) error {
	return s.each(tx, tokens, "check", func(table string, sorted []Token) error {
		if s.Dialect.mysql() {
			return s.mysqlCheck(ctx, tx, table, sorted)
		}
		return s.check(ctx, tx, table, sorted)
	})
}

// Once marks an operation on a key as applied, in the transaction that has its effect and after Claim or Check, so that
// the effect and the mark commit together or not at all. op names the operation, for example a task ID, or a task ID
// and the index of an item; it may be any bytes. The mark stays until [SQL.Prune].
//
// The error matches [ErrApplied] if the operation is already marked: roll back, because there is nothing left to do. It
// matches [ErrRetry] if the transaction must run again.
func (s SQL) Once(ctx context.Context, tx Tx, t Token, op string) error {
	if op == "" {
		return invalid("the operation has no name")
	}
	return s.each(tx, []Token{t}, "mark", func(table string, _ []Token) error {
		applied, err := s.mark(ctx, tx, table, t, storedName(op))
		if err == nil && applied {
			err = fmt.Errorf("%w: key %q, operation %q", ErrApplied, t.Key, op)
		}
		return err
	})
}

// minAge is the smallest age at which Prune deletes: twice the default MaxHold of a lease.
const minAge = time.Hour

// Prune deletes tokens and marks that are older than age, by the database's clock, and returns their number. db may be
// a pool or a transaction.
//
// A holder that was stopped for longer than age would find no larger token, and an operation that is repeated after age
// would be applied again. Choose days or weeks; less than an hour is refused.
func (s SQL) Prune(ctx context.Context, db Tx, age time.Duration) (deleted int64, err error) {
	table, err := s.table()
	if err != nil {
		return 0, err
	}
	if err := s.Dialect.known(); err != nil {
		return 0, err
	}
	if age < minAge {
		return 0, invalid("an age of %v: a holder may be stopped for that long; it must be at least %v", age, minAge)
	}
	query := "DELETE FROM " + table + " WHERE at" + s.Dialect.op("<")
	switch {
	case s.Dialect == Postgres:
		query += "(pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) (CAST($1 AS bigint) OPERATOR(pg_catalog.*) interval '1 second'))"
	case s.Dialect.mysql():
		query += "CURRENT_TIMESTAMP(6) - INTERVAL ? SECOND"
	default:
		query += "CAST(strftime('%s', 'now') AS INTEGER) - ?"
	}
	result, err := db.ExecContext(ctx, query, int64(age/time.Second))
	if err != nil {
		return 0, failure("prune", err)
	}
	return result.RowsAffected()
}

// table returns the quoted name of the table.
func (s SQL) table() (string, error) { return s.Dialect.quote(cmp.Or(s.Table, DefaultTable)) }

// each validates a call and runs it with the quoted table and the tokens, sorted by key and without duplicates.
func (s SQL) each(tx Tx, tokens []Token, verb string, do func(table string, sorted []Token) error) error {
	if err := s.Dialect.usable(tx); err != nil {
		return err
	}
	table, err := s.table()
	if err != nil {
		return err
	}
	sorted, err := sortTokens(tokens)
	if err != nil {
		return err
	}
	return failure(verb, do(table, sorted))
}

// sortTokens returns the tokens sorted by key and without duplicates.
func sortTokens(tokens []Token) ([]Token, error) {
	if len(tokens) == 0 {
		return nil, invalid("there is no token")
	}
	for _, t := range tokens {
		if err := t.validate(); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(tokens)
	slices.SortFunc(sorted, func(a, b Token) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N)) })
	sorted = slices.Compact(sorted)
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Key == sorted[i-1].Key {
			return nil, invalid("key %q has two tokens, %d and %d", sorted[i].Key, sorted[i-1].N, sorted[i].N)
		}
	}
	return sorted, nil
}
