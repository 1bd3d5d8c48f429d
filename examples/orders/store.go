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

// errFenced reports that a later holder of the lock has claimed a row, so that this one's work is void. Nothing of it was written.
var errFenced = errors.New("orders: fenced: a later holder of the lock has claimed the row")

//go:embed schema.sql
var schema string

// table is one of the two tables that tasks change.
type table string

const (
	ordersTable  table = "orders"
	sellersTable table = "sellers"
)

// change is what a task does to one row: it adds to its counter. Token is the fencing token of the row's lock, 0 when it runs
// without one. Read is what the counter was when the task began.
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

// openStore opens the database in a file, and makes it when it is not there. The file belongs to one run.
func openStore(ctx context.Context, path string, run runID) (*store, error) {
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return nil, fmt.Errorf("orders: open the database %s: %w", path, err)
	}
	// SQLite has one writer at a time. With one connection the goroutines of this process queue up for it in memory and are
	// served when it is free; with several they would poll the file's lock and some would starve.
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

// dataSource returns the driver's name for a file. Only other processes can hold the writer's lock for long enough to make us wait
// for it: busy_timeout bounds that. With synchronous(OFF) nobody waits for the disk: what is committed survives the death of
// every process, and a power cut may damage the file. That is good enough for a demonstration, and for nothing else.
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
		"_txlock": {"immediate"}, // a transaction that reads first must not find out at its first write that it came too late
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: pragmas.Encode()}).String()
}

// prepare makes the schema and the statements, and the run the file's owner.
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
		// Raises the token and reads the row in one step. No row comes back when a larger token is there.
		s.claims[t] = prepare(`INSERT INTO ` + name + ` (id, fence) VALUES (?1, ?2)
			ON CONFLICT (id) DO UPDATE SET fence = excluded.fence WHERE excluded.fence >= fence RETURNING ` + counter)
		// Matches no row when somebody else has raised the token since.
		s.commits[t] = prepare(`UPDATE ` + name + ` SET ` + counter + ` = ?3 WHERE id = ?1 AND fence = ?2`)
		// What one writes who trusts that nobody else is there.
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
// done reports that the task's effect is in the ledger already, so that there is nothing to do. The error matches
// errFenced when a later holder was there.
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
			case errors.Is(err, sql.ErrNoRows) && c.Token == 0: // nobody has written it yet
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

// commit ends a task: in one short transaction it writes the new counters, where the token is still ours, and the ledger. The
// error matches errFenced when a later holder has claimed a row; done reports that the effect was there already, and in
// both cases nothing is written.
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
		_ = tx.Rollback() // what went wrong is in err already
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
