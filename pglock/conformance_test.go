package pglock_test

import (
	"database/sql"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/lockingtest"
	"github.com/railtoken/railtoken/pglock"
)

func TestPostgresConforms(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := shared(t, d.url)
	lockingtest.Run(t, lockingtest.Harness{
		New:  func(t *testing.T) locking.Locker { return newLocker(t, db, pglock.Options{Listen: d.url}) },
		Lose: func(t *testing.T, key string) { expire(t, db, key) },
	})
}

// Behind PgBouncer each statement may run in another session.
func TestPostgresBehindPgBouncerConforms(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pooled := dbtest.StartPgBouncer(t, d.server).URL(d.name)
	db := shared(t, pooled+"&default_query_exec_mode=exec")
	lockingtest.Run(t, lockingtest.Harness{
		New:  func(t *testing.T) locking.Locker { return newLocker(t, db, pglock.Options{}) },
		Lose: func(t *testing.T, key string) { expire(t, db, key) },
	})
}

// shared returns a handle for all parallel tests of a suite.
func shared(t *testing.T, url string) *sql.DB {
	t.Helper()
	db := open(t, url)
	db.SetMaxOpenConns(32)
	db.SetMaxIdleConns(8)
	return db
}

// expire ends the TTL of a key.
func expire(t *testing.T, db *sql.DB, key string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(),
		"UPDATE railtoken.locks SET ends = clock_timestamp() - interval '1 second' WHERE key = $1::bytea", []byte(key))
	if err != nil {
		t.Fatal(err)
	}
}
