package pglock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/pglock"
)

func TestMain(m *testing.M) {
	if inChild() {
		return
	}
	redistest.SideBySide(8)
	leaktest.Verify(dbtest.Stopping(m))
}

// database is a database of one test, with the schema.
type database struct {
	server *dbtest.Postgres
	name   string
	url    string
}

// newDatabase returns a database on the server of all tests.
func newDatabase(tb testing.TB) database {
	tb.Helper()
	return newDatabaseOn(tb, dbtest.SharedPostgres(tb))
}

func newDatabaseOn(tb testing.TB, server *dbtest.Postgres) database {
	tb.Helper()
	name := server.Database(tb)
	d := database{server, name, server.URL(name)}
	if err := pglock.Create(tb.Context(), d.open(tb)); err != nil {
		tb.Fatal(err)
	}
	return d
}

// open returns a new handle, closed at the end of the test.
func (d database) open(tb testing.TB) *sql.DB {
	tb.Helper()
	return open(tb, d.url)
}

func open(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

// locker returns a Locker with a handle of its own.
func (d database) locker(tb testing.TB, opts pglock.Options) pglock.Locker {
	tb.Helper()
	return newLocker(tb, d.open(tb), opts)
}

func newLocker(tb testing.TB, db *sql.DB, opts pglock.Options) pglock.Locker {
	tb.Helper()
	l, err := pglock.New(context.Background(), db, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
