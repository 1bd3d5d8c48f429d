//go:build suspend

package pglock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/childtest"
	"github.com/railtoken/railtoken/internal/testing/suspendtest"
	"github.com/railtoken/railtoken/pglock"
)

// suspendedOn is the URL of the database of a child whose machine is suspended.
const suspendedOn = "PGLOCK_SUSPENDED_ON"

func init() {
	url := os.Getenv(suspendedOn)
	if url == "" {
		return
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	db.SetMaxOpenConns(4)
	l, err := pglock.New(context.Background(), db, pglock.Options{Listen: url})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	suspendtest.Hold(l)
	os.Exit(0)
}

func TestASuspendedHolderOnPostgresTrustsNoLease(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	suspendtest.Run(t, childtest.Start(t, suspendedOn+"="+d.url), d.locker(t, pglock.Options{Listen: d.url}))
}
