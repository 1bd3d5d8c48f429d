package fence

import (
	"context"
	"database/sql"
	"errors"
)

// claim implements Claim for PostgreSQL and SQLite: one statement, in which a key with a larger token returns no row.
//
// It writes even if the token is unchanged. A transaction whose snapshot is older than this claim then fails its own
// claim with a serialization failure (PostgreSQL under REPEATABLE READ and SERIALIZABLE) or as busy (SQLite).
func (s SQL) claim(ctx context.Context, tx Tx, table string, tokens []Token) error {
	args := make([]any, 0, 2*len(tokens))
	for _, t := range tokens {
		args = append(args, storedName(t.Key), t.N)
	}
	query := "INSERT INTO " + table + " AS f (name, n) VALUES " + s.Dialect.placeholders(len(tokens), 2) +
		" ON CONFLICT (name, op) DO UPDATE SET n = excluded.n, at = excluded.at WHERE f.n" + s.Dialect.op("<=") +
		"excluded.n RETURNING name"
	claimed := map[string]bool{}
	err := scan(ctx, tx, query, args, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		claimed[name] = true
		return err
	})
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if claimed[storedName(t.Key)] {
			continue
		}
		seen, err := s.seen(ctx, tx, table, t)
		if err != nil {
			return err
		}
		if err := mayClaim(t, seen); err != nil {
			return err
		}
		return ErrRetry // the row was changed or deleted after the claim had looked at it
	}
	return nil
}

// check implements Check for PostgreSQL and SQLite. It writes, for the reason that claim gives.
func (s SQL) check(ctx context.Context, tx Tx, table string, tokens []Token) error {
	now := "pg_catalog.clock_timestamp()"
	if s.Dialect == SQLite {
		now = "CAST(strftime('%s', 'now') AS INTEGER)"
	}
	is := s.Dialect.op("=")
	query := "UPDATE " + table + " SET at = " + now + " WHERE name" + is + s.Dialect.placeholder(1) + " AND op" + is + "'' AND n" + is +
		s.Dialect.placeholder(2) + " RETURNING n"
	for _, t := range tokens {
		_, err := one(ctx, tx, query, storedName(t.Key), t.N)
		if err == nil {
			continue
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		seen, err := s.seen(ctx, tx, table, t)
		if err != nil {
			return err
		}
		if err := mayWrite(t, seen); err != nil {
			return err
		}
		return ErrRetry // the row was changed after the check had looked at it
	}
	return nil
}

// mark implements Once.
func (s SQL) mark(ctx context.Context, tx Tx, table string, t Token, op string) (applied bool, err error) {
	if s.Dialect.mysql() {
		return mysqlMark(ctx, tx, table, t, op)
	}
	_, err = one(ctx, tx, "INSERT INTO "+table+" (name, op, n) VALUES "+s.Dialect.placeholders(1, 3)+
		" ON CONFLICT (name, op) DO NOTHING RETURNING n", storedName(t.Key), op, t.N)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

// seen returns the stored token of a key, 0 for none.
func (s SQL) seen(ctx context.Context, tx Tx, table string, t Token) (int64, error) {
	is := s.Dialect.op("=")
	n, err := one(ctx, tx, "SELECT n FROM "+table+" WHERE name"+is+s.Dialect.placeholder(1)+" AND op"+is+"''", storedName(t.Key))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// one returns the number in the single row of a query. Without a row the error matches sql.ErrNoRows.
func one(ctx context.Context, tx Tx, query string, args ...any) (n int64, err error) {
	found := 0
	err = scan(ctx, tx, query, args, func(rows *sql.Rows) error {
		found++
		return rows.Scan(&n)
	})
	switch {
	case err != nil:
		return 0, err
	case found == 0:
		return 0, sql.ErrNoRows
	case found > 1:
		return 0, invalid("%d rows match where one was meant", found)
	}
	return n, nil
}

// scan runs a query and calls f at each of its rows.
func scan(ctx context.Context, tx Tx, query string, args []any, f func(rows *sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
