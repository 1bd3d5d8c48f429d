package fence

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // PostgreSQL 9.5 or later, and databases that speak its SQL
	MySQL    Dialect = "mysql"    // MySQL 5.7 or later
	MariaDB  Dialect = "mariadb"  // MariaDB 10.2 or later; the same as MySQL
	SQLite   Dialect = "sqlite"   // SQLite 3.35 or later
)

// Tx is a transaction: an *sql.Tx, a type that wraps one, or an *sql.Conn on which a transaction was begun by hand.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// known returns an error that matches ErrInvalid for an unknown dialect.
func (d Dialect) known() error {
	switch d {
	case Postgres, MySQL, MariaDB, SQLite:
		return nil
	}
	return invalid("Dialect is %q: set it to one of %s, %s, %s, %s", string(d), Postgres, MySQL, MariaDB, SQLite)
}

// usable returns an error that matches ErrInvalid for an unknown dialect, and for a pool in place of a transaction. In
// a pool each statement commits on its own, so a claim would protect nothing that comes after it.
func (d Dialect) usable(tx Tx) error {
	if err := d.known(); err != nil {
		return err
	}
	if tx == nil {
		return invalid("the transaction is nil")
	}
	if _, pool := tx.(interface{ SetMaxOpenConns(n int) }); pool {
		return invalid("a %T is not a transaction: pass the *sql.Tx of BeginTx, or use SQL.Do", tx)
	}
	return nil
}

// mysql reports whether the database is MySQL or MariaDB.
func (d Dialect) mysql() bool { return d == MySQL || d == MariaDB }

// op returns an operator. PostgreSQL prefers an operator that matches its arguments exactly, in any schema of the
// search_path, which another user of the database may own; so its own is named with its schema.
func (d Dialect) op(name string) string {
	if d == Postgres {
		return " OPERATOR(pg_catalog." + name + ") "
	}
	return " " + name + " "
}

// placeholder returns the i-th placeholder of a statement, counted from 1.
func (d Dialect) placeholder(i int) string {
	if d == Postgres {
		return "$" + strconv.Itoa(i)
	}
	return "?"
}

// placeholders returns rows of n placeholders each: ($1, $2), ($3, $4).
func (d Dialect) placeholders(rows, n int) string {
	var b strings.Builder
	for i := range rows * n {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%n == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		b.WriteString(d.placeholder(i + 1))
	}
	b.WriteString(")")
	return b.String()
}

// quote quotes the name of a column, or of a table with or without its schema.
func (d Dialect) quote(name string) (string, error) {
	mark := `"`
	if d.mysql() {
		mark = "`"
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part == "" || strings.ContainsRune(part, 0) {
			return "", invalid("%q is not the name of a table or column", name)
		}
		parts[i] = mark + strings.ReplaceAll(part, mark, mark+mark) + mark
	}
	return strings.Join(parts, "."), nil
}
