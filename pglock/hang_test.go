package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// crowd makes 6000 attempts of 0.3 s, each for a key of its own, while the server is stopped for 3 s. It returns how
// long some key was held after the server had continued.
func crowd(t *testing.T, server *dbtest.Postgres, d database, l locking.Locker) time.Duration {
	t.Helper()
	const callers, attempts = 600, 10
	server.Pause(t)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range attempts {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				_, err := l.Acquire(ctx, []string{fmt.Sprint("key", caller, "/", i)}, locking.Options{TTL: 10 * time.Minute})
				cancel()
				if err == nil {
					t.Error("a stopped server grants a key")
				}
			}
		})
	}
	all.Wait()
	own := d.open(t)
	server.Resume()
	began := time.Now()
	for held, quiet := -1, time.Now(); time.Since(quiet) < time.Second; <-time.After(5 * time.Millisecond) {
		if err := own.QueryRowContext(t.Context(), "SELECT count(*) FROM railtoken.held").Scan(&held); err != nil {
			t.Fatal(err)
		}
		if held > 0 {
			quiet = time.Now()
		}
		if held > 0 && time.Since(began) > 2*time.Second {
			t.Fatalf("%d keys are still held", held)
		}
	}
	return time.Since(began) - time.Second
}

func TestAHangLeavesNoKeyLocked(t *testing.T) {
	// Not parallel: its thousands of requests and the tests beside it would slow one another.
	for _, connections := range []int{4, 400} {
		t.Run(fmt.Sprint(connections, " connections"), func(t *testing.T) {
			t.Parallel()
			server := dbtest.StartPostgres(t, "max_connections=1000")
			d := newDatabaseOn(t, server)
			db := d.open(t)
			db.SetMaxOpenConns(connections)
			db.SetMaxIdleConns(connections)
			warm(t, db, connections)
			l := newLocker(t, db, pglock.Options{})
			took := crowd(t, server, d, l)
			began := time.Now()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			t.Logf("every key was free after %v; Close took %v", took, time.Since(began))
			if time.Since(began) > 3*time.Second {
				t.Errorf("Close took %v", time.Since(began))
			}
		})
	}
}

// warm opens all connections of a pool.
func warm(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	var open []*sql.Conn
	for range n {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	for _, conn := range open {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedPoolIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	db := d.open(t)
	l := newLocker(t, db, pglock.Options{})
	lease := acquire(t, l, locking.Options{}, "key")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, acquired := l.Acquire(t.Context(), []string{"other"}, locking.Options{})
	for what, err := range map[string]error{"acquire": acquired, "renew": lease.Renew(t.Context()), "release": lease.Release(t.Context())} {
		if !contains(err, "close it after") || errors.Is(err, locking.ErrUnavailable) {
			t.Errorf("%s: %v, want an error that names the remedy", what, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("they took %v", took)
	}
}

func TestAClockSetBackCostsOneTTL(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	const ttl = time.Second
	acquire(t, l, locking.Options{TTL: ttl, MaxHold: ttl}, "dead")
	// As if the clock had been set back by an hour.
	d.exec(t, "UPDATE railtoken.locks SET since = since + interval '1 hour', ends = ends + interval '1 hour', "+
		"notify = notify + interval '1 hour' WHERE fence > 0")
	free(t, l, "dead")
	free(t, l, "other", "dead")
}

func TestLeasesMayLastForAnyTime(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	for _, ttl := range []time.Duration{10 * time.Second, 24 * time.Hour, 60 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		lease := acquire(t, l, locking.Options{TTL: ttl, MaxHold: ttl}, "key")
		_, err := l.Acquire(t.Context(), []string{"key"}, locking.Options{Notify: ttl})
		held, ok := errors.AsType[*locking.HeldError](err)
		if !ok || held.Holder.Remaining > ttl || held.Holder.Remaining < ttl-quick {
			t.Errorf("%v: a second attempt: %v, want ErrHeld for that long", ttl, err)
		}
		tx := d.begin(t, nil)
		if err := errors.Join(pglock.InTx(t.Context(), tx, lease), tx.Commit(), lease.Release(t.Context())); err != nil {
			t.Errorf("%v: %v", ttl, err)
		}
	}
}
