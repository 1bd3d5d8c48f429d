package fence

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Row keeps the token in a column of the guarded row itself, so that one statement guards the row, and no table
// grows. The column is an integer of 64 bits, and NULL or 0 before the first claim:
//
//	ALTER TABLE orders ADD COLUMN fence bigint NOT NULL DEFAULT 0;
//
// On PostgreSQL, IDs are compared by its own operators: a column of an extension's type, such as citext, compares as the
// type to which it converts, text. Give Table its schema if other users may create tables in a schema of the
// search_path.
//
// A Row is a value without state, and safe for concurrent use. Under REPEATABLE READ, a transaction that has read
// before its claim is refused with [ErrRetry] if the row has changed since. Only [SQL] notices changes of other rows.
type Row struct {
	Dialect Dialect  // of the database; has no default
	Table   string   // with or without its schema, spelled as the database stores it
	ID      []string // the columns that identify a row; default "id"
	Column  string   // holds the token; default "fence"
}

// Claim raises the token of a row to the caller's. id has a value for each column of ID. Make Claim the first statement
// of the transaction that reads, and read the row afterwards. The same token may be claimed again.
//
// The error matches [ErrFenced] if the row has a larger token, sql.ErrNoRows if there is no such row, and [ErrRetry] if
// the transaction must run again. After an error the caller must roll back.
func (r Row) Claim(ctx context.Context, tx Tx, t Token, id ...any) error {
	q, err := r.prepare(tx, t, id)
	if err != nil {
		return err
	}
	if r.Dialect.mysql() {
		if err := q.mysqlLock(ctx, tx, t, mayClaim); err != nil {
			return failure("claim", err)
		}
		_, err := tx.ExecContext(ctx, "UPDATE "+q.table+" SET "+q.column+" = ? WHERE "+q.where(2), append([]any{t.N}, id...)...)
		return failure("claim", err)
	}
	_, err = one(ctx, tx, "UPDATE "+q.table+" SET "+q.column+" = "+r.Dialect.placeholder(1)+" WHERE "+q.where(2)+
		" AND COALESCE("+q.column+", 0)"+r.Dialect.op("<=")+r.Dialect.placeholder(2+len(id))+" RETURNING "+q.column, append(append([]any{t.N}, id...), t.N)...)
	return failure("claim", q.explain(ctx, tx, t, err, mayClaim))
}

// Check requires that the token of a row is still the caller's, and locks the row until the transaction ends. Call it
// in each later transaction of the same lease, before the first write.
//
// The error matches [ErrFenced] if the row has a larger token, [ErrUnclaimed] if it has a smaller one, sql.ErrNoRows if
// there is no such row, and [ErrRetry] if the transaction must run again.
func (r Row) Check(ctx context.Context, tx Tx, t Token, id ...any) error {
	q, err := r.prepare(tx, t, id)
	if err != nil {
		return err
	}
	if r.Dialect.mysql() {
		return failure("check", q.mysqlLock(ctx, tx, t, mayWrite))
	}
	_, err = one(ctx, tx, "UPDATE "+q.table+" SET "+q.column+" = "+q.column+" WHERE "+q.where(1)+
		" AND "+q.column+r.Dialect.op("=")+r.Dialect.placeholder(1+len(id))+" RETURNING "+q.column, append(append([]any{}, id...), t.N)...)
	return failure("check", q.explain(ctx, tx, t, err, mayWrite))
}

// rowQuery has the quoted names of a Row, and the row that a call is for.
type rowQuery struct {
	dialect       Dialect
	table, column string
	ids           []string
	values        []any
}

// prepare validates a call.
func (r Row) prepare(tx Tx, t Token, id []any) (q rowQuery, err error) {
	if err := r.Dialect.usable(tx); err != nil {
		return q, err
	}
	if err := t.validate(); err != nil {
		return q, err
	}
	ids := r.ID
	if len(ids) == 0 {
		ids = []string{"id"}
	}
	if len(id) != len(ids) {
		return q, invalid("%d values for the columns %q that identify a row", len(id), ids)
	}
	q = rowQuery{dialect: r.Dialect, values: id}
	var faults []error
	quote := func(name string) string {
		quoted, err := r.Dialect.quote(name)
		faults = append(faults, err)
		return quoted
	}
	q.table, q.column = quote(r.Table), quote(cmp.Or(r.Column, "fence"))
	for _, name := range ids {
		q.ids = append(q.ids, quote(name))
	}
	return q, errors.Join(faults...)
}

// where returns the condition that selects the row. Its first placeholder has the number first.
func (q rowQuery) where(first int) string {
	terms := make([]string, len(q.ids))
	for i, id := range q.ids {
		terms[i] = id + q.dialect.op("=") + q.dialect.placeholder(first+i)
	}
	return strings.Join(terms, " AND ")
}

// explain returns why a statement has matched no row.
func (q rowQuery) explain(ctx context.Context, tx Tx, t Token, err error, rule func(t Token, seen int64) error) error {
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	seen, err := one(ctx, tx, "SELECT COALESCE("+q.column+", 0) FROM "+q.table+" WHERE "+q.where(1), q.values...)
	if err != nil {
		return q.missing(err)
	}
	return cmp.Or(rule(t, seen), ErrRetry)
}

// missing says which row there is not.
func (q rowQuery) missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s has no such row: insert it before the claim, or use SQL, which needs none: %w", q.table, err)
	}
	return err
}

// mysqlLock locks the row, applies a rule to its token, and compares the whole row with the transaction's snapshot of
// it.
func (q rowQuery) mysqlLock(ctx context.Context, tx Tx, t Token, rule func(t Token, seen int64) error) error {
	query := "SELECT COALESCE(" + q.column + ", 0), t.* FROM " + q.table + " AS t WHERE " + q.where(1)
	seen, locked, err := readRow(ctx, tx, query+" FOR UPDATE", q.values)
	if err != nil {
		return q.missing(err)
	}
	if err := rule(t, seen); err != nil {
		return err
	}
	_, snapshot, err := readRow(ctx, tx, query, q.values)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !bytes.Equal(locked, snapshot) {
		return errOldSnapshot
	}
	return err
}

// readRow returns the token of a row and all of the row's bytes.
func readRow(ctx context.Context, tx Tx, query string, args []any) (seen int64, content []byte, err error) {
	found := 0
	err = scan(ctx, tx, query, args, func(rows *sql.Rows) error {
		found++
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values := make([]sql.RawBytes, len(columns)-1)
		targets := []any{&seen}
		for i := range values {
			targets = append(targets, &values[i])
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for _, v := range values {
			content = fmt.Appendf(content, "%d %t:", len(v), v == nil)
			content = append(content, v...)
		}
		return nil
	})
	switch {
	case err != nil:
		return 0, nil, err
	case found == 0:
		return 0, nil, sql.ErrNoRows
	case found > 1:
		return 0, nil, invalid("%d rows match where one was meant: the columns of ID must identify a row", found)
	}
	return seen, content, nil
}
