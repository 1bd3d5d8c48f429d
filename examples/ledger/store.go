package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/railtoken/railtoken/fence"
)

// startCents is the balance of each account before the first transfer.
const startCents = 100_000

// fenceTable is fence's table. The ledger has its own, because it drops it: a Redis that starts anew may count from smaller tokens.
const fenceTable = "railtoken_ledger_fence"

// database names a database in which the ledger may drop and create the tables railtoken_ledger_*.
type database struct {
	Dialect fence.Dialect
	Source  string // of its driver
}

// store is the accounts and their journal. A transfer is a line of the journal and two balances, written together.
type store struct {
	db      *sql.DB
	dialect fence.Dialect
}

// open connects to a database.
func (d database) open() (*store, error) {
	driver, ok := map[fence.Dialect]string{fence.SQLite: "sqlite", fence.Postgres: "pgx", fence.MariaDB: "mysql"}[d.Dialect]
	if !ok {
		return nil, fmt.Errorf("ledger has no driver for %q", d.Dialect)
	}
	db, err := sql.Open(driver, d.Source)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return &store{db: db, dialect: d.Dialect}, nil
}

// sqliteSource is the source of a file. Its transactions are immediate, as fence requires.
func sqliteSource(file string) string {
	return "file:" + file + "?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

// reset creates the tables anew, with n accounts.
func (s *store) reset(ctx context.Context, n int) error {
	statements := []string{
		"DROP TABLE IF EXISTS railtoken_ledger_accounts",
		"DROP TABLE IF EXISTS railtoken_ledger_journal",
		"CREATE TABLE railtoken_ledger_accounts (id INTEGER PRIMARY KEY, cents BIGINT NOT NULL)",
		"CREATE TABLE railtoken_ledger_journal (transfer INTEGER NOT NULL, payer INTEGER NOT NULL, payee INTEGER NOT NULL, cents BIGINT NOT NULL)",
		"DROP TABLE IF EXISTS " + fenceTable,
		fence.SQL{Dialect: s.dialect, Table: fenceTable}.DDL(),
	}
	for id := range n {
		statements = append(statements, fmt.Sprintf("INSERT INTO railtoken_ledger_accounts VALUES (%d, %d)", id, startCents))
	}
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the ledger: %w", err)
		}
	}
	return nil
}

// in runs f in a transaction, again if it loses a race. That is unrelated to locks: a database may report a deadlock or a conflict
// in any mode.
func (s *store) in(ctx context.Context, f func(tx *sql.Tx) error) (err error) {
	for try := range 12 {
		if try > 0 {
			time.Sleep(rand.N(time.Duration(try) * 10 * time.Millisecond)) //nolint:gosec // jitter
		}
		if err = s.once(ctx, f); !fence.Retryable(err) {
			break
		}
	}
	return err
}

func (s *store) once(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// balances reads the balances of a transfer's accounts.
func (s *store) balances(ctx context.Context, tx *sql.Tx, t transfer) (payer, payee int64, err error) {
	read := func(id int) (cents int64) {
		err = errors.Join(err, tx.QueryRowContext(ctx, s.bind("SELECT cents FROM railtoken_ledger_accounts WHERE id = ?"), id).Scan(&cents))
		return cents
	}
	return read(t.From), read(t.To), err
}

// book writes the balances, which were computed in Go, and the line of the journal.
func (s *store) book(ctx context.Context, tx *sql.Tx, t transfer, payer, payee int64) error {
	set := func(id int, cents int64) error {
		_, err := tx.ExecContext(ctx, s.bind("UPDATE railtoken_ledger_accounts SET cents = ? WHERE id = ?"), cents, id)
		return err
	}
	first, second := func() error { return set(t.From, payer) }, func() error { return set(t.To, payee) }
	if t.From > t.To { // in the same order in all transactions, so that they do not deadlock
		first, second = second, first
	}
	if err := first(); err != nil {
		return err
	}
	if err := second(); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.bind("INSERT INTO railtoken_ledger_journal VALUES (?, ?, ?, ?)"), t.ID, t.From, t.To, t.Cents)
	return err
}

// bind writes placeholders as the dialect does.
func (s *store) bind(query string) string {
	for i := 1; s.dialect == fence.Postgres && strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
	}
	return query
}

// findings are what an audit of the ledger finds.
type findings struct {
	done       int   // different transfers in the journal
	duplicates int   // lines of the journal for a transfer that has one already
	sum        int64 // of all balances, against the start: negative if money was lost, positive if it was created
	off        int64 // the sum of the differences between each account and its journal
}

// audit compares the balances with the start and the journal.
func (s *store) audit(ctx context.Context) (f findings, err error) {
	var lines int
	err = s.db.QueryRowContext(ctx, "SELECT COUNT(*), COUNT(DISTINCT transfer) FROM railtoken_ledger_journal").Scan(&lines, &f.done)
	if err != nil {
		return f, err
	}
	f.duplicates = lines - f.done
	rows, err := s.db.QueryContext(ctx, `SELECT a.cents,
  (SELECT COALESCE(SUM(j.cents), 0) FROM railtoken_ledger_journal j WHERE j.payee = a.id),
  (SELECT COALESCE(SUM(j.cents), 0) FROM railtoken_ledger_journal j WHERE j.payer = a.id) FROM railtoken_ledger_accounts a`)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	for rows.Next() {
		var cents, in, out int64
		if err := rows.Scan(&cents, &in, &out); err != nil {
			return f, err
		}
		f.sum += cents - startCents
		f.off += max(cents-(startCents+in-out), startCents+in-out-cents)
	}
	return f, rows.Err()
}
