package dbtest_test

import (
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
