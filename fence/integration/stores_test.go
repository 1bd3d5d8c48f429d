package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
)

// store is a database, configured in one of the ways that users do.
type store struct {
	name    string
	dialect fence.Dialect
	// open returns a pool for an empty database, which is gone after the test.
	open func(t *testing.T) *sql.DB
	// snapshots are the isolation levels under which a transaction reads from one snapshot.
	snapshots []sql.IsolationLevel
}

var stores = []store{
	{name: "sqlite", dialect: fence.SQLite, open: sqlite("WAL", "immediate")},
	{name: "postgres", dialect: fence.Postgres, open: postgres, snapshots: []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable}},
	{name: "mariadb", dialect: fence.MariaDB, open: mariadb(""), snapshots: repeatableRead},
	{name: "mariadb with clientFoundRows", dialect: fence.MySQL, open: mariadb("?clientFoundRows=true&interpolateParams=true"), snapshots: repeatableRead},
	{name: "mariadb with snapshot isolation", dialect: fence.MariaDB, open: mariadb("?innodb_snapshot_isolation=ON"), snapshots: repeatableRead},
}

// repeatableRead is what MariaDB does by default.
var repeatableRead = []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead}

// postgres opens a new schema, which is created much faster than a database.
func postgres(t *testing.T) *sql.DB {
	url := dbtest.SharedPostgres(t).URL("postgres")
	return open(t, "pgx", url+"&search_path="+create(t, open(t, "pgx", url), "SCHEMA"))
}

// mariadb opens a new database with parameters of the driver.
func mariadb(params string) func(t *testing.T) *sql.DB {
	return func(t *testing.T) *sql.DB {
		server := dbtest.SharedMariaDB(t)
		return open(t, "mysql", server.Source(create(t, open(t, "mysql", server.Source("")), "DATABASE"))+params)
	}
}

var created atomic.Int64

// create makes a schema or a database, which goes with its server, and returns its name.
func create(t *testing.T, db *sql.DB, what string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", created.Add(1))
	if _, err := db.ExecContext(t.Context(), "CREATE "+what+" "+name); err != nil {
		t.Fatal(err)
	}
	return name
}

// sqlite opens a new file with a journal mode and a way to begin transactions.
func sqlite(journal, begin string) func(t *testing.T) *sql.DB {
	return func(t *testing.T) *sql.DB {
		params := url.Values{"_pragma": {"busy_timeout(20000)", "journal_mode(" + journal + ")", "synchronous(OFF)"}, "_txlock": {begin}}
		return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?"+params.Encode())
	}
}

func open(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// bench is a store with the tables of fence and of a test.
type bench struct {
	t  *testing.T
	db *sql.DB
	fence.SQL
}

// each runs a test with every store.
func each(t *testing.T, f func(t *testing.T, b *bench, s store)) {
	t.Helper()
	t.Parallel()
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f(t, newBench(t, s.dialect, s.open(t)), s)
		})
	}
}

func newBench(t *testing.T, d fence.Dialect, db *sql.DB) *bench {
	t.Helper()
	b := &bench{t: t, db: db, SQL: fence.SQL{Dialect: d}}
	b.exec(b.DDL())
	b.exec(b.DDL()) // it may be there
	b.exec("CREATE TABLE stock (id INT PRIMARY KEY, pieces INT NOT NULL, fence BIGINT NULL)")
	b.exec("INSERT INTO stock (id, pieces) VALUES (1, 0)")
	return b
}

func (b *bench) exec(query string) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), query); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
}

// begin begins a transaction, which is rolled back at the end of the test if it is still open.
func (b *bench) begin(level sql.IsolationLevel) *sql.Tx {
	b.t.Helper()
	tx, err := b.db.BeginTx(b.t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// in runs f in a transaction, and commits it if f returns nil.
func (b *bench) in(f func(tx *sql.Tx) error) error {
	tx, err := b.db.BeginTx(b.t.Context(), nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// claim claims tokens in a transaction of its own.
func (b *bench) claim(tokens ...fence.Token) error {
	return b.in(func(tx *sql.Tx) error { return b.Claim(b.t.Context(), tx, tokens...) })
}

// check checks tokens in a transaction of its own.
func (b *bench) check(tokens ...fence.Token) error {
	return b.in(func(tx *sql.Tx) error { return b.Check(b.t.Context(), tx, tokens...) })
}

// pieces reads the guarded number.
func (b *bench) pieces(q fence.Tx) (n int) {
	b.t.Helper()
	rows, err := q.QueryContext(b.t.Context(), "SELECT pieces FROM stock WHERE id = 1")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// must ends the test unless err is nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expect reports an error that does not match target.
func expect(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v; want %v", what, err, target)
	}
}

func token(n int64) fence.Token { return fence.Token{Key: "order:1", N: n} }
