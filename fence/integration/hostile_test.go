package integration

import (
	"database/sql"
	"testing"
	"time"

	"github.com/railtoken/railtoken/fence"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
)

// Another user may own what PostgreSQL finds first by its search_path. Here all of it fails when it is used, so each
// statement that the package can send is sent once, with each outcome.
func TestNoStatementUsesHostileObjects(t *testing.T) {
	t.Parallel()
	server := dbtest.SharedPostgres(t)
	name := server.Database(t)
	server.MakeHostile(t, name)
	server.Exec(t, name, "CREATE SCHEMA own; CREATE TABLE own.stock (id varchar(20), shelf int, fence bigint, PRIMARY KEY (id, shelf)); "+
		"INSERT INTO own.stock VALUES ('a', 1)")
	db := open(t, "pgx", server.URL(name)+"&search_path=own,"+dbtest.HostilePath)
	b := &bench{t: t, db: db, SQL: fence.SQL{Dialect: fence.Postgres}}
	b.exec(b.DDL())
	other := fence.Token{Key: "order:2", N: 5}
	expect(t, "check before any claim", b.check(token(10)), fence.ErrUnclaimed)
	must(t, b.claim(token(10), other))
	must(t, b.check(token(10), other))
	expect(t, "an earlier claim", b.claim(token(9)), fence.ErrFenced)
	expect(t, "an earlier check", b.check(token(9)), fence.ErrFenced)
	once := func(tx *sql.Tx) error { return b.Once(t.Context(), tx, token(10), "op") }
	must(t, b.Do(t.Context(), db, []fence.Token{token(10)}, once))
	expect(t, "once more", b.in(once), fence.ErrApplied)
	server.Exec(t, name, "UPDATE own.railtoken_fence SET at = at - interval '2 hours' WHERE name = 'order:2'")
	if n, err := b.Prune(t.Context(), db, time.Hour); n != 1 || err != nil {
		t.Errorf("Prune deleted %d rows (error %v), want 1", n, err)
	}

	row := fence.Row{Dialect: fence.Postgres, Table: "stock", ID: []string{"id", "shelf"}}
	claim := func(n int64, id ...any) error {
		return b.in(func(tx *sql.Tx) error { return row.Claim(t.Context(), tx, token(n), id...) })
	}
	check := func(n int64, id ...any) error {
		return b.in(func(tx *sql.Tx) error { return row.Check(t.Context(), tx, token(n), id...) })
	}
	expect(t, "check of a row before any claim", check(10, "a", 1), fence.ErrUnclaimed)
	must(t, claim(10, "a", 1))
	must(t, check(10, "a", 1))
	expect(t, "an earlier claim of a row", claim(9, "a", 1), fence.ErrFenced)
	expect(t, "a row that does not exist", claim(9, "b", 1), sql.ErrNoRows)
}
