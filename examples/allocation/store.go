package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"

	"github.com/hibiken/asynq"
	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/railtoken/railtoken/fence"
)

//go:embed schema.sql
var schema string

// errShort reports that there are not enough pieces. The item is not tried again.
var errShort = fmt.Errorf("out of stock%w", silent{asynq.SkipRetry})

// silent is an error that others match, and that has no text.
type silent struct{ error }

func (silent) Error() string { return "" }

func (s silent) Unwrap() error { return s.error }

// store is the database of the warehouse. It is safe for use by many goroutines.
type store struct{ db *sql.DB }

// openStore makes the database.
func openStore(ctx context.Context, path string, orders []order, stock map[string]int) (*store, error) {
	pragmas := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(OFF)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer at a time: here they queue up in memory
	s := &store{db}
	err = s.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		for _, o := range orders {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, o.ID); err != nil {
				return err
			}
		}
		for seller, pieces := range stock {
			if _, err := tx.ExecContext(ctx, `INSERT INTO stock (id, pieces) VALUES (?, ?)`, seller, pieces); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the database: %w", err), db.Close())
	}
	return s, nil
}

func (s *store) close() { _ = s.db.Close() }

// row is a row that a task works on, under the fencing token of its lock. Value is what the task has read.
type row struct {
	Table, Column, ID string
	Token             fence.Token
	Value             int
}

// guard refuses a task whose lock of the row has had a later holder. The token is a column of the row.
func (r row) guard() fence.Row { return fence.Row{Dialect: fence.SQLite, Table: r.Table} }

// claim raises the token of each row and reads its value, in one transaction. The error matches fence.ErrFenced if a
// later holder has claimed a row.
func (s *store) claim(ctx context.Context, rows []row) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		for i, r := range rows {
			if err := r.guard().Claim(ctx, tx, r.Token, r.ID); err != nil {
				return err
			}
			err := tx.QueryRowContext(ctx, `SELECT `+r.Column+` FROM `+r.Table+` WHERE id = ?`, r.ID).Scan(&rows[i].Value)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// commit writes the values of the rows if their tokens are still the task's own, and the ledger. The error matches
// fence.ErrFenced if a later holder has claimed a row. Then it writes nothing, nor if the effect is in the ledger
// already.
func (s *store) commit(ctx context.Context, task string, item int, orderID string, rows []row) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		added, err := affected(tx.ExecContext(ctx,
			`INSERT INTO ledger (task, item, order_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, task, item, orderID))
		if err != nil || added == 0 {
			return err
		}
		for _, r := range rows {
			if err := r.guard().Check(ctx, tx, r.Token, r.ID); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `UPDATE `+r.Table+` SET `+r.Column+` = ?2 WHERE id = ?1`, r.ID, r.Value); err != nil {
				return err
			}
		}
		return nil
	})
}

// count returns the number that a query has.
func (s *store) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

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
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // err has the cause
		return err
	}
	return tx.Commit()
}
