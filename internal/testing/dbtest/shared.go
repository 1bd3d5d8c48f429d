package dbtest

import (
	"sync"
	"testing"
)

// Stopping returns an m whose Run also stops the servers of [SharedPostgres] and [SharedMariaDB]. TestMain of a package
// that uses them calls leaktest.Verify(dbtest.Stopping(m)).
func Stopping(m interface{ Run() int }) interface{ Run() int } {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.stopped = true
	return stopping{m}
}

type stopping struct{ inner interface{ Run() int } }

// Run runs the tests, and then stops the servers.
func (s stopping) Run() int {
	code := s.inner.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres != nil {
		_ = shared.postgres.End()
		shared.postgres = nil
	}
	if shared.mariadb != nil {
		shared.mariadb.stop()
		shared.mariadb = nil
	}
	return code
}

// shared has the servers of all tests.
var shared struct {
	mu       sync.Mutex
	stopped  bool // by TestMain
	postgres *Postgres
	mariadb  *MariaDB
}

// SharedPostgres returns the server of all tests of the package, which it starts with the first call. A test must not
// stop or pause it, and works in a [Postgres.Database] of its own.
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	program(tb, "postgres")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.stopped {
		tb.Fatal("dbtest: TestMain must call leaktest.Verify(dbtest.Stopping(m)), which stops the server")
	}
	if shared.postgres == nil {
		p, err := RunPostgres(tb.Context(), "")
		if err != nil {
			tb.Fatal(err)
		}
		shared.postgres = p
	}
	return shared.postgres
}

// SharedMariaDB returns the server of all tests of the package, which it starts with the first call. A test works in a
// [MariaDB.Database] of its own.
func SharedMariaDB(tb testing.TB) *MariaDB {
	tb.Helper()
	program(tb, "mariadbd")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.stopped {
		tb.Fatal("dbtest: TestMain must call leaktest.Verify(dbtest.Stopping(m)), which stops the server")
	}
	if shared.mariadb == nil {
		m, err := startMariaDB(tb)
		if err != nil {
			tb.Fatal(err)
		}
		shared.mariadb = m
	}
	return shared.mariadb
}
