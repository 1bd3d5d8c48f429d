package dbtest_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/testserver"
)

func TestMain(m *testing.M) { leaktest.Verify(dbtest.Stopping(m)) }

// These tests keep a plain "go test ./..." from leaving tests out silently.
func TestPostgresIsInstalled(t *testing.T) {
	testserver.Server{
		Name: "PostgreSQL", Import: "github.com/railtoken/railtoken/internal/testing/dbtest",
		Starters: []string{"StartPostgres", "RunPostgres", "SharedPostgres"},
	}.Require(t, dbtest.FindPostgres())
}

func TestPgBouncerIsInstalled(t *testing.T) {
	testserver.Server{
		Name: "PgBouncer", Import: "github.com/railtoken/railtoken/internal/testing/dbtest", Starters: []string{"StartPgBouncer"},
	}.Require(t, dbtest.FindPgBouncer())
}

func TestMariaDBIsInstalled(t *testing.T) {
	testserver.Server{
		Name: "MariaDB", Import: "github.com/railtoken/railtoken/internal/testing/dbtest", Starters: []string{"SharedMariaDB"},
	}.Require(t, dbtest.FindMariaDB())
}

func TestMariaDBGivesEachTestADatabase(t *testing.T) {
	t.Parallel()
	m := dbtest.SharedMariaDB(t)
	one, two := m.Database(t), m.Database(t)
	m.Exec(t, one, "CREATE TABLE t (x INT); INSERT INTO t VALUES (7)")
	if x := m.Exec(t, one, "SELECT x FROM t"); x != "7" {
		t.Errorf("the table has %q", x)
	}
	if tables := m.Exec(t, two, "SHOW TABLES"); tables != "" {
		t.Errorf("the other database has the table %s", tables)
	}
	if dbtest.SharedMariaDB(t) != m || !strings.HasSuffix(m.Source(one), "/"+one) {
		t.Errorf("the tests do not share their server %s", m.Source(one))
	}
}

func TestDatabasesOfTestsAreApart(t *testing.T) {
	t.Parallel()
	p := dbtest.SharedPostgres(t)
	one, two := p.Database(t), p.Database(t)
	p.Exec(t, one, "CREATE TABLE t (x int)")
	if n := p.Exec(t, two, "SELECT count(*) FROM pg_tables WHERE tablename = 't'"); n != "0" {
		t.Errorf("the other database has %s tables of that name", n)
	}
	if dbtest.SharedPostgres(t) != p {
		t.Error("the tests do not share their server")
	}
}

func TestDataOutlivesKillAndRestart(t *testing.T) {
	t.Parallel()
	p := dbtest.StartPostgres(t)
	db := p.Database(t)
	p.Exec(t, db, "CREATE TABLE t (x int); INSERT INTO t VALUES (7)")
	before := p.PID()
	p.Kill(t)
	if old, err := os.FindProcess(before); p.PID() != 0 || err == nil && old.Signal(syscall.Signal(0)) == nil {
		t.Errorf("process %d still runs", before)
	}
	p.Restart(t)
	if x := p.Exec(t, db, "SELECT x FROM t"); x != "7" || p.PID() == before {
		t.Errorf("the table has %q", x)
	}
}

func TestAPausedServerAnswersOnceResumed(t *testing.T) {
	t.Parallel()
	p := dbtest.StartPostgres(t)
	p.Pause(t)
	state := stateOf(t, p.PID())
	if state != "T" {
		t.Errorf("the paused server is in state %s", state)
	}
	p.Resume()
	if one := p.Exec(t, "postgres", "SELECT 1"); one != "1" {
		t.Errorf("the resumed server answers %q", one)
	}
}

func stateOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func TestPgBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	p := dbtest.SharedPostgres(t)
	db := p.Database(t)
	b := dbtest.StartPgBouncer(t, p)
	if out := p.ExecAt(t, b.URL(db), "SELECT current_database()"); out != db {
		t.Errorf("through PgBouncer the database is %q, want %q", out, db)
	}
	for pool := range strings.Lines(p.ExecAt(t, b.URL("pgbouncer"), "SHOW POOLS")) {
		if strings.HasPrefix(pool, db+"|") && strings.HasSuffix(strings.TrimSpace(pool), "|transaction") {
			return
		}
	}
	t.Error("PgBouncer has no pool of transactions for the database")
}
