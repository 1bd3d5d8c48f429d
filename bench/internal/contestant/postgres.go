package contestant

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"hash/fnv"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/railtoken/railtoken/pglock"
)

// connections is the size of a pool to PostgreSQL: one for each of 64 callers that wait for an advisory lock.
const connections = 64

// onPostgres returns a contestant with a pool of its own.
func onPostgres(name string, open func(ctx context.Context, db *sql.DB, url string) (*Locker, error)) Kind {
	return Kind{Name: name, Store: OnPostgres, Open: func(addrs []string) (*Locker, error) {
		db, err := sql.Open("pgx", addrs[0])
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		l, err := open(context.Background(), db, addrs[0])
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		closeLocker := l.Close
		l.Close = func() error { return errors.Join(closeLocker(), db.Close()) }
		return l, nil
	}}
}

// noClose is the Close of a Locker that has only its pool.
func noClose() error { return nil }

// Advisory is a session's advisory lock of PostgreSQL: in memory, without a lease, a token or a holder's name. A caller
// keeps a connection while it waits and holds.
var Advisory = onPostgres("advisory lock", func(_ context.Context, db *sql.DB, _ string) (*Locker, error) {
	do := func(ctx context.Context, lock, key string, hold func()) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		name := fnv.New64a()
		_, _ = name.Write([]byte(key)) // never fails
		id := int64(name.Sum64())
		var locked bool
		if err := conn.QueryRowContext(ctx, lock, id).Scan(&locked); err != nil {
			return err
		}
		if !locked {
			return errTaken
		}
		hold()
		_, err = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", id)
		return err
	}
	return &Locker{
		Pair: func(ctx context.Context, key string) error {
			return do(ctx, "SELECT pg_try_advisory_lock($1)", key, func() {})
		},
		Do: func(ctx context.Context, key string, hold func()) error {
			return do(ctx, "SELECT true FROM pg_advisory_lock($1)", key, hold)
		},
		Close: noClose,
	}, nil
})

// Row is what a lease in a row costs at the least: a statement that takes it unless it is held, and one that deletes it
// if it still is the owner's. It has no fencing token, no renewal and no way to wait.
var Row = onPostgres("row by hand", func(ctx context.Context, db *sql.DB, _ string) (*Locker, error) {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS held (key text PRIMARY KEY, owner text, ends timestamptz)`)
	if err != nil {
		return nil, err
	}
	pair := func(ctx context.Context, key string) error {
		owner := rand.Text()
		for _, step := range []struct {
			sql string
			err error
		}{
			{`INSERT INTO held VALUES ($1, $2, clock_timestamp() + interval '30 s') ON CONFLICT (key)
				DO UPDATE SET owner = EXCLUDED.owner, ends = EXCLUDED.ends WHERE held.ends < clock_timestamp()`, errTaken},
			{`DELETE FROM held WHERE key = $1 AND owner = $2`, errGone},
		} {
			done, err := db.ExecContext(ctx, step.sql, key, owner)
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); err != nil || n == 0 {
				return errors.Join(err, step.err)
			}
		}
		return nil
	}
	return &Locker{Pair: pair, Do: doesNotWait, Close: noClose}, nil
})

// Pglock is package pglock behind the gate where the callers of one process queue.
var Pglock = onPostgres("pglock", func(ctx context.Context, db *sql.DB, url string) (*Locker, error) {
	if err := pglock.Create(ctx, db); err != nil {
		return nil, err
	}
	l, err := pglock.New(ctx, db, pglock.Options{Listen: url})
	if err != nil {
		return nil, err
	}
	return behindGate(l, l.Close), nil
})
