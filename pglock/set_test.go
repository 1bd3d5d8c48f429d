package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// errTooLate reports that an update was refused.
var errTooLate = errors.New("the update was refused")

// addTo adds a number to a set by reading the whole set and writing it back. pause is between the two.
type addTo func(ctx context.Context, lease *locking.Lease, n int, pause func()) error

// Jepsen's set under a lock: clients add numbers to a set, and some of them are paused for longer than their TTL after
// they have read it. An addition that was confirmed must be in the set at the end.
func TestASetLosesNothingWithFenceOrInTx(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		loses bool
		set   func(t *testing.T, d database) (add addTo, members func() []int)
	}{
		{"in memory", true, setInMemory},
		{"guarded by the fence", false, setWithFence},
		{"in tx", false, setInTx},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			add, members := tt.set(t, d)
			confirmed := fill(t, d, add)
			left := members()
			var lost []int
			for _, n := range confirmed {
				if !slices.Contains(left, n) {
					lost = append(lost, n)
				}
			}
			t.Logf("%d additions confirmed, %d lost", len(confirmed), len(lost))
			if (len(lost) > 0) != tt.loses || len(confirmed) < 12 {
				t.Errorf("%d of %d confirmed additions are lost: %v; want some: %v", len(lost), len(confirmed), lost, tt.loses)
			}
		})
	}
}

// fill adds numbers, and returns those that were confirmed.
func fill(t *testing.T, d database, add addTo) (confirmed []int) {
	t.Helper()
	const clients, additions = 4, 5
	var mu sync.Mutex
	var all sync.WaitGroup
	for client := range clients {
		l := d.locker(t, pglock.Options{})
		all.Go(func() {
			for i := range additions {
				n := client*additions + i
				// Without renewals, as if the process had been stopped.
				lease, err := locking.Wait(t.Context(), l, []string{"set"}, locking.Options{TTL: 2 * time.Second, MaxHold: 2 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				pause := func() {}
				if i == client {
					pause = func() { <-time.After(2500 * time.Millisecond) }
				}
				err = add(t.Context(), lease, n, pause)
				_ = lease.Release(t.Context())
				if err == nil {
					mu.Lock()
					confirmed = append(confirmed, n)
					mu.Unlock()
				} else if i != client {
					t.Logf("an addition without a pause: %v", err)
				}
			}
		})
	}
	all.Wait()
	return confirmed
}

// setInMemory is a set that does not check anything.
func setInMemory(*testing.T, database) (addTo, func() []int) {
	var mu sync.Mutex
	var set []int
	read := func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(set)
	}
	return func(_ context.Context, _ *locking.Lease, n int, pause func()) error {
		was := read()
		pause()
		mu.Lock()
		defer mu.Unlock()
		set = slices.Concat(was, []int{n})
		return nil
	}, read
}

// setWithFence is a row that is claimed by the token of the lease on entry, and refuses smaller ones.
func setWithFence(t *testing.T, d database) (addTo, func() []int) {
	d.exec(t, "CREATE TABLE sets AS SELECT ''::text AS members, 0::bigint AS fence")
	db := d.open(t)
	return func(ctx context.Context, lease *locking.Lease, n int, pause func()) error {
		token, err := lease.Fence(ctx)
		if err != nil {
			return err
		}
		var members string
		err = db.QueryRowContext(ctx, "UPDATE sets SET fence = $1 WHERE fence <= $1 RETURNING members", token).Scan(&members)
		if err != nil {
			return err
		}
		pause()
		result, err := db.ExecContext(ctx, "UPDATE sets SET members = $1 WHERE fence = $2", fmt.Sprint(members, n, " "), token)
		if err != nil {
			return err
		}
		if changed, err := result.RowsAffected(); err != nil || changed == 0 {
			return errors.Join(errTooLate, err)
		}
		return nil
	}, membersOf(t, db)
}

// setInTx is a row that is read and written in a transaction with InTx.
func setInTx(t *testing.T, d database) (addTo, func() []int) {
	d.exec(t, "CREATE TABLE sets AS SELECT ''::text AS members")
	db := d.open(t)
	return func(ctx context.Context, lease *locking.Lease, n int, pause func()) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := pglock.InTx(ctx, tx, lease); err != nil {
			return err
		}
		var members string
		if err := tx.QueryRowContext(ctx, "SELECT members FROM sets").Scan(&members); err != nil {
			return err
		}
		pause()
		if _, err := tx.ExecContext(ctx, "UPDATE sets SET members = $1", fmt.Sprint(members, n, " ")); err != nil {
			return err
		}
		return tx.Commit()
	}, membersOf(t, db)
}

// membersOf returns a function that reads the set.
func membersOf(t *testing.T, db *sql.DB) func() []int {
	return func() (set []int) {
		var members string
		if err := db.QueryRowContext(t.Context(), "SELECT members FROM sets").Scan(&members); err != nil {
			t.Fatal(err)
		}
		for field := range strings.FieldsSeq(members) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, n)
		}
		return set
	}
}
