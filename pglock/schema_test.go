package pglock_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

func TestAnUnusableSchemaNamesTheRemedy(t *testing.T) {
	t.Parallel()
	server := dbtest.SharedPostgres(t)
	db := open(t, server.URL(server.Database(t)))
	start := func(what, remedy string) {
		t.Helper()
		if _, err := pglock.New(t.Context(), db, pglock.Options{}); !errors.Is(err, pglock.ErrSchema) || !contains(err, remedy) {
			t.Errorf("%s: %v, want ErrSchema that says %q", what, err, remedy)
		}
	}
	start("no schema", "pglock.Create")
	if _, err := db.ExecContext(t.Context(), pglock.Schema()); err != nil {
		t.Fatal(err)
	}
	l := newLocker(t, db, pglock.Options{})
	set := func(version int) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "UPDATE railtoken.installation SET version = $1", version); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE railtoken.installation DROP CONSTRAINT newest"); err != nil {
		t.Fatal(err)
	}
	set(1)
	start("an older version", "pglock.Create")
	if err := pglock.Create(t.Context(), db); err != nil {
		t.Errorf("an update of an older version: %v", err)
	}
	set(1000)
	start("a newer version", "update this program")
	if err := pglock.Create(t.Context(), db); !errors.Is(err, pglock.ErrSchema) || !contains(err, "update this program") {
		t.Errorf("Create over a newer version: %v, want ErrSchema", err)
	}
	older := strings.ReplaceAll(pglock.Schema(), "VALUES (3)", "VALUES (1)")
	if _, err := db.ExecContext(t.Context(), older); !contains(err, "newest") {
		t.Errorf("the script of an earlier version: %v, want a failure", err)
	}
	if _, err := db.ExecContext(t.Context(), "DROP SCHEMA railtoken CASCADE"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(t.Context(), []string{"key"}, locking.Options{}); !errors.Is(err, pglock.ErrSchema) {
		t.Errorf("an attempt after the schema was dropped: %v, want ErrSchema", err)
	}
}

func TestCreateNeedsADatabase(t *testing.T) {
	t.Parallel()
	if err := pglock.Create(t.Context(), nil); err == nil || !contains(err, "give it an *sql.DB") {
		t.Error(err)
	}
}

func TestCreateMayRunAgainAndSideBySide(t *testing.T) {
	t.Parallel()
	server := dbtest.SharedPostgres(t)
	url := server.URL(server.Database(t))
	var all sync.WaitGroup
	for range 4 {
		db := open(t, url)
		all.Go(func() {
			for range 3 {
				if err := pglock.Create(t.Context(), db); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lease := acquire(t, newLocker(t, open(t, url), pglock.Options{}), locking.Options{}, "key")
	if err := pglock.Create(t.Context(), open(t, url)); err != nil {
		t.Error(err)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("Create has ended a lease: %v", err)
	}
}

func TestARoleNeedsOnlyTheDocumentedRights(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	role := "worker_" + d.name
	d.exec(t, "CREATE ROLE "+role)
	t.Cleanup(func() {
		d.server.Exec(t, "postgres", "DROP DATABASE "+d.name+" WITH (FORCE)")
		d.server.Exec(t, "postgres", "DROP ROLE "+role)
	})
	as := d.url + "&options=-c%20role%3D" + role
	if _, err := pglock.New(t.Context(), open(t, as), pglock.Options{}); !contains(err, "grant USAGE") {
		t.Errorf("without rights: %v", err)
	}
	d.exec(t, "GRANT USAGE ON SCHEMA railtoken TO "+role+"; GRANT USAGE ON SEQUENCE railtoken.fence TO "+role+
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA railtoken TO "+role)
	db := open(t, as)
	if err := pglock.Create(t.Context(), db); err != nil {
		t.Errorf("Create where the schema exists: %v", err)
	}
	lease := acquire(t, newLocker(t, db, pglock.Options{}), locking.Options{}, "key")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lease.Renew(t.Context()), pglock.InTx(t.Context(), tx, lease), tx.Commit()); err != nil {
		t.Error(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRowsOfUnusedKeysAreCleaned(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	for _, key := range []string{"crashed", "expired", "held"} {
		acquire(t, l, locking.Options{}, key)
	}
	for _, key := range []string{"unused", "used", "awaited"} {
		lease := acquire(t, l, locking.Options{}, key)
		if key == "awaited" {
			if _, err := l.Acquire(t.Context(), []string{key}, locking.Options{Notify: time.Hour}); !errors.Is(err, locking.ErrHeld) {
				t.Fatal(err)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.exec(t, "UPDATE railtoken.locks SET ends = clock_timestamp() - interval '2 minutes' WHERE key = 'crashed'")
	d.exec(t, "UPDATE railtoken.locks SET ends = clock_timestamp() WHERE key = 'expired'")
	d.exec(t, "UPDATE railtoken.locks SET ends = clock_timestamp() - interval '11 seconds' WHERE key IN ('unused', 'awaited')")
	pglock.MakeCleaningDue(l)
	if err := acquire(t, l, locking.Options{}, "other").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := d.open(t)
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		var left string
		err := db.QueryRowContext(t.Context(), "SELECT string_agg(DISTINCT convert_from(key, 'UTF8'), ' ' ORDER BY convert_from(key, 'UTF8')) "+
			"FROM railtoken.locks").Scan(&left)
		if err == nil && left == "awaited expired held other used" {
			return
		}
		if err != nil || time.Since(began) > quick {
			t.Fatalf("the keys %q are left (error %v)", left, err)
		}
	}
}
