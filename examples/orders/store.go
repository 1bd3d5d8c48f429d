package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v4"
	"modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/railtoken/railtoken/fence"
)

// guard refuses a task whose lock has had a later holder. Its table is in the same file.
var guard = fence.SQL{Dialect: fence.SQLite}

//go:embed schema.sql
var schema string

// table is one of the two tables that tasks change.
type table string

const (
	ordersTable  table = "orders"
	sellersTable table = "sellers"
)

// change is what a task does to one row: it adds Amount to its counter. Token is the fencing token of the row's lock, 0 without a
// lock. Read is the counter's value when the task began.
type change struct {
	Table  table
	ID     string
	Key    string
	Amount int64
	Token  int64
	Read   int64
}

// effect is what a task has done, for the ledger.
type effect struct {
	TaskID, Type string
	Began        time.Time
	Changes      []change
}

// store is the database. It is safe for use by many goroutines, and by several processes on the same file.
type store struct {
	db       *sql.DB
	reads    map[table]*sql.Stmt
	writes   map[table]*sql.Stmt
	inLedger *sql.Stmt
	toLedger *sql.Stmt
	count    *sql.Stmt
}

// openStore opens the database in a file, and creates the file if it does not exist. The file belongs to one run.
func openStore(ctx context.Context, path string, run runID) (*store, error) {
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return nil, fmt.Errorf("orders: open the database %s: %w", path, err)
	}
	// SQLite has one writer at a time. With one connection, the goroutines of this process queue up for it in memory. With
	// several, they would poll the file's lock, and some would starve.
	db.SetMaxOpenConns(1)
	s := &store{db: db, reads: map[table]*sql.Stmt{}, writes: map[table]*sql.Stmt{}}
	if err := openFile(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("orders: open the database %s: %w", path, err), db.Close())
	}
	if err := s.prepare(ctx, run); err != nil {
		return nil, errors.Join(fmt.Errorf("orders: open the database %s: %w", path, err), db.Close())
	}
	return s, nil
}

// openFile makes the first connection. When several processes put a new file into WAL mode at the same moment, SQLite refuses
// all but one of them at once, whatever the busy_timeout: the others try again for 30 s at most.
func openFile(ctx context.Context, db *sql.DB) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond), backoff.WithMaxInterval(100*time.Millisecond),
		backoff.WithMaxElapsedTime(30*time.Second))
	return backoff.Retry(func() error {
		err := db.PingContext(ctx)
		if refused, ok := errors.AsType[*sqlite.Error](err); err != nil && (!ok || refused.Code()&0xff != busy) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(wait, ctx))
}

// busy is SQLite's SQLITE_BUSY.
const busy = 5

// dataSource returns the driver's name for a file. Only other processes can hold the writer's lock for long; busy_timeout limits
// the wait for them. synchronous(OFF) does not wait for the disk: a commit survives the death of every process, but a power cut
// may damage the file. That is good enough for a demonstration only.
func dataSource(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	pragmas := url.Values{
		"_pragma": {"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(OFF)"},
		"_txlock": {"immediate"}, // else a transaction that reads first may fail at its first write
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: pragmas.Encode()}).String()
}

// prepare creates the schema and the statements, and records the run as the file's owner.
func (s *store) prepare(ctx context.Context, run runID) error {
	for _, ddl := range []string{schema, guard.DDL()} {
		if _, err := s.db.ExecContext(ctx, ddl); err != nil {
			return err
		}
	}
	var owner string
	err := s.db.QueryRowContext(ctx,
		`INSERT INTO run (one, id) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET id = id RETURNING id`, string(run)).Scan(&owner)
	if err != nil {
		return err
	}
	if owner != string(run) {
		return fmt.Errorf("it belongs to run %q, this is run %q: give another file with -db, or the same -run", owner, run)
	}
	var faults []error
	prepare := func(query string) *sql.Stmt {
		stmt, err := s.db.PrepareContext(ctx, query)
		faults = append(faults, err)
		return stmt
	}
	for t, counter := range map[table]string{ordersTable: "revision", sellersTable: "reserved"} {
		name := string(t)
		s.reads[t] = prepare(`SELECT ` + counter + ` FROM ` + name + ` WHERE id = ?1`)
		s.writes[t] = prepare(`INSERT INTO ` + name + ` (id, ` + counter + `) VALUES (?1, ?2)
			ON CONFLICT (id) DO UPDATE SET ` + counter + ` = excluded.` + counter)
	}
	s.inLedger = prepare(`SELECT EXISTS (SELECT 1 FROM ledger WHERE task_id = ?)`)
	s.toLedger = prepare(`INSERT INTO ledger (task_id, type, began_us, ended_us, changes) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`)
	s.count = prepare(`SELECT count(*) FROM ledger`)
	return errors.Join(faults...)
}

// close closes the file.
func (s *store) close() error { return s.db.Close() }

// has reports whether the effect of a task is in the ledger.
func (s *store) has(ctx context.Context, taskID string) (found bool, err error) {
	if err := s.inLedger.QueryRowContext(ctx, taskID).Scan(&found); err != nil {
		return false, fmt.Errorf("orders: read the ledger: %w", err)
	}
	return found, nil
}

// claim begins a task: it claims the locks of the rows and reads the rows' counters into the changes, in one short
// transaction. done reports that the task's effect is already in the ledger, so that there is nothing to do. The error
// matches fence.ErrFenced if a lock has had a later holder.
func (s *store) claim(ctx context.Context, taskID string, changes []change) (done bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if err := queryRow(ctx, tx, s.inLedger, taskID).Scan(&done); err != nil || done {
			return err
		}
		if tokens := tokensOf(changes); len(tokens) > 0 {
			if err := guard.Claim(ctx, tx, tokens...); err != nil {
				return err
			}
		}
		for i, c := range changes {
			err := queryRow(ctx, tx, s.reads[c.Table], c.ID).Scan(&changes[i].Read)
			if err != nil && !errors.Is(err, sql.ErrNoRows) { // without a row, the counter is 0
				return err
			}
		}
		return nil
	})
	return done, err
}

// commit ends a task: in one short transaction it writes the ledger and, if the tokens are still the largest, the new
// counters. The error matches fence.ErrFenced if a lock has had a later holder. done reports that the effect was already
// there. In both cases nothing is written.
func (s *store) commit(ctx context.Context, e effect) (done bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		amounts := make(map[string]int64, len(e.Changes))
		for _, c := range e.Changes {
			amounts[c.Key] = c.Amount
		}
		list, err := json.Marshal(amounts)
		if err != nil {
			return err
		}
		added, err := affected(exec(ctx, tx, s.toLedger,
			e.TaskID, e.Type, e.Began.UnixMicro(), time.Now().UnixMicro(), string(list)))
		if err != nil || added == 0 {
			done = added == 0
			return err
		}
		if tokens := tokensOf(e.Changes); len(tokens) > 0 {
			if err := guard.Check(ctx, tx, tokens...); err != nil {
				return err
			}
		}
		for _, c := range e.Changes {
			if _, err := exec(ctx, tx, s.writes[c.Table], c.ID, c.Read+c.Amount); err != nil {
				return err
			}
		}
		return nil
	})
	return done && err == nil, err
}

// tokensOf returns the tokens of the rows' locks. A task without a lock has none.
func tokensOf(changes []change) (tokens []fence.Token) {
	for _, c := range changes {
		if c.Token != 0 {
			tokens = append(tokens, fence.Token{Key: c.Key, N: c.Token})
		}
	}
	return tokens
}

// queryRow runs a prepared query within a transaction.
func queryRow(ctx context.Context, tx *sql.Tx, query *sql.Stmt, args ...any) *sql.Row {
	return tx.StmtContext(ctx, query).QueryRowContext(ctx, args...) //nolint:sqlclosecheck // closed with the transaction
}

// exec runs a prepared command within a transaction.
func exec(ctx context.Context, tx *sql.Tx, command *sql.Stmt, args ...any) (sql.Result, error) {
	return tx.StmtContext(ctx, command).ExecContext(ctx, args...) //nolint:sqlclosecheck // closed with the transaction
}

// affected returns how many rows a command has changed.
func affected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// transact runs one transaction.
func (s *store) transact(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("orders: begin a transaction: %w", err)
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // err has the cause
		if errors.Is(err, fence.ErrFenced) {
			return err
		}
		return fmt.Errorf("orders: write to the database: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("orders: commit: %w", err)
	}
	return nil
}

// finished returns how many effects are in the ledger.
func (s *store) finished(ctx context.Context) (n int, err error) {
	if err := s.count.QueryRowContext(ctx).Scan(&n); err != nil {
		return 0, fmt.Errorf("orders: count the ledger: %w", err)
	}
	return n, nil
}
