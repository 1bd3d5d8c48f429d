package fence

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// The statements for MySQL and MariaDB never use the number of affected rows: it depends on the client's flag
// clientFoundRows, with which an unchanged row counts, and without which it does not. They compare what they read.
//
// Under REPEATABLE READ, which is the default there, a transaction reads from the snapshot of its first plain SELECT. A
// claim that comes later locks the newest row and succeeds, and what the transaction has read, and reads from then on,
// is older than the claim. So each claim and each check changes the row's version, and compares the version that it has
// locked with the version that a plain SELECT shows. If they differ, the snapshot is old.

// tokenRow is a row of a token.
type tokenRow struct{ n, version int64 }

// mysqlClaim implements Claim.
func (s SQL) mysqlClaim(ctx context.Context, tx Tx, table string, tokens []Token) error {
	var create, raise []any
	for _, t := range tokens {
		create = append(create, storedName(t.Key), 0)
		raise = append(raise, storedName(t.Key), t.N)
	}
	insert := "INSERT INTO " + table + " (name, n) VALUES " + s.Dialect.placeholders(len(tokens), 2) + " ON DUPLICATE KEY UPDATE "
	// Without this step, the locking read of a missing row would lock a gap, and two claims that lock the same gap
	// deadlock.
	if _, err := tx.ExecContext(ctx, insert+"name = name", create...); err != nil {
		return err
	}
	if err := s.mysqlLock(ctx, tx, table, tokens, mayClaim); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, insert+"n = VALUES(n), version = version + 1, at = CURRENT_TIMESTAMP(6)", raise...)
	return err
}

// mysqlCheck implements Check.
func (s SQL) mysqlCheck(ctx context.Context, tx Tx, table string, tokens []Token) error {
	if err := s.mysqlLock(ctx, tx, table, tokens, mayWrite); err != nil {
		return err
	}
	where, args := mysqlNames(tokens)
	_, err := tx.ExecContext(ctx, "UPDATE "+table+" SET version = version + 1, at = CURRENT_TIMESTAMP(6) WHERE "+where, args...)
	return err
}

// mysqlLock locks the rows of the tokens, and applies a rule to each.
func (s SQL) mysqlLock(ctx context.Context, tx Tx, table string, tokens []Token, rule func(t Token, seen int64) error) error {
	where, args := mysqlNames(tokens)
	query := "SELECT name, n, version FROM " + table + " WHERE " + where + " ORDER BY name"
	locked, err := mysqlRead(ctx, tx, query+" FOR UPDATE", args)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if err := rule(t, locked[storedName(t.Key)].n); err != nil {
			return err
		}
	}
	snapshot, err := mysqlRead(ctx, tx, query, args)
	if err != nil {
		return err
	}
	if !maps.Equal(locked, snapshot) {
		return errOldSnapshot
	}
	return nil
}

// errOldSnapshot reports that a transaction has read before it claimed.
var errOldSnapshot = fmt.Errorf("%w: it has read from a snapshot that is older than the claim: "+
	"make the claim its first statement", ErrRetry)

// mysqlNames returns the condition that selects the rows of the tokens.
func mysqlNames(tokens []Token) (where string, args []any) {
	for _, t := range tokens {
		args = append(args, storedName(t.Key))
	}
	return "op = '' AND name IN (?" + strings.Repeat(", ?", len(tokens)-1) + ")", args
}

func mysqlRead(ctx context.Context, tx Tx, query string, args []any) (map[string]tokenRow, error) {
	found := map[string]tokenRow{}
	err := scan(ctx, tx, query, args, func(rows *sql.Rows) error {
		var name string
		var row tokenRow
		err := rows.Scan(&name, &row.n, &row.version)
		found[name] = row
		return err
	})
	return found, err
}

// mysqlMark implements Once. The version of a mark is a random number, by which a transaction knows its own.
func mysqlMark(ctx context.Context, tx Tx, table string, t Token, op string) (applied bool, err error) {
	mine := rand.Int64() //nolint:gosec // it tells two transactions apart, and is no secret
	if _, err := tx.ExecContext(ctx, "INSERT INTO "+table+" (name, op, n, version) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE name = name",
		storedName(t.Key), op, t.N, mine); err != nil {
		return false, err
	}
	version, err := one(ctx, tx, "SELECT version FROM "+table+" WHERE name = ? AND op = ? FOR UPDATE", storedName(t.Key), op)
	return version != mine, err
}
