package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// tryLock makes one attempt to take a lock, and returns how to release it if it was free.
type tryLock func(ctx context.Context) (release func(), free bool, err error)

// exclusive reports whether of two holders only one gets the lock, and the other one after it.
func exclusive(t *testing.T, one, other tryLock) bool {
	t.Helper()
	try := func(lock tryLock) (func(), bool) {
		release, free, err := lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return release, free
	}
	first, free := try(one)
	if !free {
		t.Fatal("a lock that nothing holds is not free")
	}
	if _, free := try(other); free {
		return false
	}
	first()
	second, free := try(other)
	if free {
		second()
	}
	return free
}

func TestLocksHoldBehindPgBouncerUnlikeAdvisoryOnes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pooler := dbtest.StartPgBouncer(t, d.server, "default_pool_size = 1")
	pooled := pooler.URL(d.name) + "&default_query_exec_mode=exec"
	for _, url := range []string{d.url, pooled} {
		if !exclusive(t, rowLease(t, url), rowLease(t, url)) {
			t.Errorf("%s: pglock does not exclude", url)
		}
	}
	if !exclusive(t, advisoryLock(t, d.url), advisoryLock(t, d.url)) {
		t.Error("advisory locks do not exclude in sessions of their own")
	}
	if exclusive(t, advisoryLock(t, pooled), advisoryLock(t, pooled)) {
		t.Error("advisory locks exclude behind PgBouncer: the control does not show what it must")
	}
}

// rowLease locks with this package.
func rowLease(t *testing.T, url string) tryLock {
	l := newLocker(t, open(t, url), pglock.Options{})
	return func(ctx context.Context) (func(), bool, error) {
		lease, err := l.Acquire(ctx, []string{"key"}, locking.Options{})
		if errors.Is(err, locking.ErrHeld) {
			return nil, false, nil
		}
		return func() { _ = lease.Release(ctx) }, err == nil, err
	}
}

// advisoryLock locks with PostgreSQL's own locks of a session.
func advisoryLock(t *testing.T, url string) tryLock {
	db := open(t, url)
	return func(ctx context.Context) (func(), bool, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, false, err
		}
		var free bool
		err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(1)").Scan(&free)
		if !free {
			return nil, false, errors.Join(err, conn.Close())
		}
		t.Cleanup(func() { _ = conn.Close() })
		return func() { unlock(ctx, conn) }, true, err
	}
}

func unlock(ctx context.Context, conn *sql.Conn) {
	_, _ = conn.ExecContext(ctx, "SELECT pg_advisory_unlock(1)")
	_ = conn.Close()
}

func TestAPoolerThatBreaksTheDriverIsNamed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	pooler := dbtest.StartPgBouncer(t, d.server)
	one, other := open(t, pooler.URL(d.name)), open(t, pooler.URL(d.name))
	var said error
	for range 20 { // pgx names its prepared statements alike in each connection, so two clients of one session collide
		for _, db := range []*sql.DB{one, other} {
			l, err := pglock.New(t.Context(), db, pglock.Options{})
			if err == nil {
				_, err = l.Acquire(t.Context(), []string{"key"}, locking.Options{})
				err = errors.Join(err, l.Close())
			}
			if err != nil && !errors.Is(err, locking.ErrHeld) {
				said = err
			}
		}
	}
	if said == nil {
		t.Skip("this PgBouncer keeps prepared statements apart")
	}
	if want := "default_query_exec_mode=exec"; !contains(said, want) {
		t.Errorf("the error %v does not say %q", said, want)
	}
}
