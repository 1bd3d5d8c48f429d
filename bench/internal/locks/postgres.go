package locks

import (
	"context"
	"crypto/rand"
	"database/sql"
	"hash/fnv"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/railtoken/railtoken/pglock"
)

// connections is the size of a pool to PostgreSQL: one for each of 64 callers that wait for an advisory lock.
const connections = 64

// onPostgres returns a contestant with a pool of its own.
func onPostgres(name string, open func(ctx context.Context, db *sql.DB, url string) (*Locker, error)) Kind {
	return Kind{Name: name, Store: OnPostgres, open: func(addrs []string, _ int) (*Locker, error) {
		db, err := sql.Open("pgx", addrs[0])
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		l, err := open(context.Background(), db, addrs[0])
		return over(db.Close, l, err)
	}}
}

// Advisory is a session's advisory lock of PostgreSQL: in memory, without a lease, a token or a holder's name. A caller
// keeps a connection while it waits and holds.
var Advisory = onPostgres("advisory lock", func(_ context.Context, db *sql.DB, _ string) (*Locker, error) {
	by := func(lock string) Lock {
		return func(ctx context.Context, key string, hold func()) error {
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
				return ErrTaken
			}
			hold()
			_, err = conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock($1)", id)
			return err
		}
	}
	return &Locker{
		Try: by("SELECT pg_try_advisory_lock($1)"), Wait: by("SELECT true FROM pg_advisory_lock($1)"),
	}, nil
})

// Row is what a lease in a row costs at the least: a statement that takes it unless it is held, and one that deletes it
// if it still is the owner's. It has no fencing token, no renewal and no way to wait.
var Row = onPostgres("row by hand", func(ctx context.Context, db *sql.DB, _ string) (*Locker, error) {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS held (key text PRIMARY KEY, owner text, ends timestamptz)`)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, ifNone error, statement string, args ...any) error {
		done, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		n, err := done.RowsAffected()
		if err == nil && n == 0 {
			return ifNone
		}
		return err
	}
	return &Locker{Try: func(ctx context.Context, key string, hold func()) error {
		owner := rand.Text()
		err := do(ctx, ErrTaken, `INSERT INTO held VALUES ($1, $2, clock_timestamp() + interval '30 s') ON CONFLICT (key)
			DO UPDATE SET owner = EXCLUDED.owner, ends = EXCLUDED.ends WHERE held.ends < clock_timestamp()`, key, owner)
		if err != nil {
			return err
		}
		hold()
		return do(context.Background(), errGone, `DELETE FROM held WHERE key = $1 AND owner = $2`, key, owner)
	}}, nil
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
