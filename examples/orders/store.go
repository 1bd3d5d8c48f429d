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

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

// errFenced reports that a later holder of the lock has claimed a row. Nothing of this task's work was written.
var errFenced = errors.New("orders: fenced: a later holder of the lock has claimed the row")

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
	db         *sql.DB
	claims     map[table]*sql.Stmt
	reads      map[table]*sql.Stmt
	commits    map[table]*sql.Stmt
	overwrites map[table]*sql.Stmt
	inLedger   *sql.Stmt
	toLedger   *sql.Stmt
	count      *sql.Stmt
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
	s := &store{
		db: db, claims: map[table]*sql.Stmt{}, reads: map[table]*sql.Stmt{},
		commits: map[table]*sql.Stmt{}, overwrites: map[table]*sql.Stmt{},
	}
	if err := s.prepare(ctx, run); err != nil {
		return nil, errors.Join(fmt.Errorf("orders: open the database %s: %w", path, err), db.Close())
	}
	return s, nil
}

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
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return err
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
		// Raises the token and reads the row in one step. Returns no row if a larger token is there.
		s.claims[t] = prepare(`INSERT INTO ` + name + ` (id, fence) VALUES (?1, ?2)
			ON CONFLICT (id) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence RETURNING ` + counter)
		// Matches no row if a later holder has raised the token since.
		s.commits[t] = prepare(`UPDATE ` + name + ` SET ` + counter + ` = ?3 WHERE id = ?1 AND fence = ?2`)
		// The statements of an app without fencing.
		s.reads[t] = prepare(`SELECT ` + counter + ` FROM ` + name + ` WHERE id = ?1`)
		s.overwrites[t] = prepare(`INSERT INTO ` + name + ` (id, ` + counter + `) VALUES (?1, ?2)
			ON CONFLICT (id) DO UPDATE SET ` + counter + ` = excluded.` + counter)
	}
	s.inLedger = prepare(`SELECT EXISTS (SELECT 1 FROM ledger WHERE task_id = ?)`)
	s.toLedger = prepare(`INSERT INTO ledger (task_id, type, began_us, ended_us, changes) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`)
	s.count = prepare(`SELECT count(*) FROM ledger`)
	return errors.Join(faults...)
}

// close closes the file.
func (s *store) close() error { return s.db.Close() }

// claim begins a task: it raises the token of each row and reads the row's counter into the changes, in one short transaction.
// done reports that the task's effect is already in the ledger, so that there is nothing to do. The error matches errFenced if a
// later holder has claimed a row.
func (s *store) claim(ctx context.Context, taskID string, changes []change) (done bool, err error) {
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if err := queryRow(ctx, tx, s.inLedger, taskID).Scan(&done); err != nil || done {
			return err
		}
		for i, c := range changes {
			var row *sql.Row
			if c.Token == 0 {
				row = queryRow(ctx, tx, s.reads[c.Table], c.ID)
			} else {
				row = queryRow(ctx, tx, s.claims[c.Table], c.ID, c.Token)
			}
			switch err := row.Scan(&changes[i].Read); {
			case errors.Is(err, sql.ErrNoRows) && c.Token == 0: // a new row
			case errors.Is(err, sql.ErrNoRows):
				return fmt.Errorf("%w: %s %s", errFenced, c.Table, c.ID)
			case err != nil:
				return err
			}
		}
		return nil
	})
	return done, err
}

// commit ends a task: in one short transaction it writes the new counters, if the tokens are still the task's own, and the
// ledger. The error matches errFenced if a later holder has claimed a row. done reports that the effect was already there. In both
// cases nothing is written.
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
		for _, c := range e.Changes {
			if c.Token == 0 {
				if _, err := exec(ctx, tx, s.overwrites[c.Table], c.ID, c.Read+c.Amount); err != nil {
					return err
				}
				continue
			}
			matched, err := affected(exec(ctx, tx, s.commits[c.Table], c.ID, c.Token, c.Read+c.Amount))
			if err != nil {
				return err
			}
			if matched == 0 {
				return fmt.Errorf("%w: %s %s", errFenced, c.Table, c.ID)
			}
		}
		return nil
	})
	return done && err == nil, err
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
		if errors.Is(err, errFenced) {
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
