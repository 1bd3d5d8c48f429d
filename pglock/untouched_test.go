package pglock_test

import (
	"testing"

	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/internal/testing/locktaskstest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
	"github.com/railtoken/railtoken/pglock"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

func TestASuccessCountsAfterAStallOfPostgres(t *testing.T) {
	t.Parallel()
	server := dbtest.StartPostgres(t)
	d := newDatabaseOn(t, server)
	locker := d.locker(t, pglock.Options{})
	locktaskstest.Stall(t, locker, d.locker(t, pglock.Options{}), func() { server.Pause(t) }, server.Resume)
}

func TestAnExpiredLeaseInPostgresKnowsItsSuccessors(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		happens   func(t *testing.T, d database, other locking.Locker)
		untouched bool
	}{
		"nothing": {func(*testing.T, database, locking.Locker) {}, true},
		"was taken": {func(t *testing.T, _ database, other locking.Locker) {
			t.Helper()
			if err := acquire(t, other, locking.Options{}, "b").Release(t.Context()); err != nil {
				t.Error(err)
			}
		}, false},
		"is taken": {func(t *testing.T, _ database, other locking.Locker) {
			t.Helper()
			acquire(t, other, locking.Options{}, "b")
		}, false},
		"a row is gone": {func(t *testing.T, d database, _ locking.Locker) {
			t.Helper()
			d.exec(t, "DELETE FROM railtoken.held WHERE key = 'b'")
		}, false},
		"all rows are gone": {func(t *testing.T, d database, _ locking.Locker) {
			t.Helper()
			d.exec(t, "DELETE FROM railtoken.locks")
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			lease := acquire(t, d.locker(t, pglock.Options{}), locking.Options{}, "b", "a")
			d.exec(t, "UPDATE railtoken.locks SET ends = pg_catalog.clock_timestamp() - interval '1 second' WHERE fence > 0")
			tc.happens(t, d, d.locker(t, pglock.Options{}))
			if got, err := untouched(t, lease); got != tc.untouched || err != nil {
				t.Errorf("untouched: %v, %v; want %v", got, err, tc.untouched)
			}
		})
	}
}

func untouched(t *testing.T, lease *locking.Lease) (bool, error) {
	t.Helper()
	grant, ok := locks.Grants(lease)[0].(backend.UntouchedGrant)
	if !ok {
		t.Fatal("the grant cannot tell")
	}
	return grant.Untouched(t.Context())
}
