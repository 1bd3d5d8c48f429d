package pglock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// The tokens of a key come from rows that are updated, or inserted while others are being deleted.
func TestTokensGrowAcrossDeletesAndVacuum(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	const holders, rounds = 8, 30
	var last, inside atomic.Int64
	var all sync.WaitGroup
	for range holders {
		l := d.locker(t, pglock.Options{})
		all.Go(func() {
			for range rounds {
				lease, err := locking.Wait(t.Context(), l, []string{"key"}, locking.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holders at a time")
				}
				token, err := lease.Fence(t.Context())
				if before := last.Swap(token); err != nil || token <= before {
					t.Errorf("token %d (error %v) after %d", token, err, before)
				}
				inside.Add(-1)
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	db := d.open(t)
	for range 3 {
		if _, err := db.ExecContext(t.Context(), "VACUUM FULL railtoken.locks"); err != nil {
			t.Error(err)
		}
		for range 10 {
			if _, err := db.ExecContext(t.Context(), "DELETE FROM railtoken.locks WHERE owner = '' AND fence > 0"); err != nil {
				t.Error(err)
			}
		}
	}
	all.Wait()
}

// Without one order of locks PostgreSQL would end some of these by 40P01.
func TestSeveralKeysInAnyOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	keys := []string{"a", "b", "c", "d", string(make([]byte, 1024)), string(make([]byte, 2000))}
	inside := make([]atomic.Int32, len(keys))
	var all sync.WaitGroup
	for i := range 8 {
		l := d.locker(t, pglock.Options{})
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 40 {
				chosen := random.Perm(len(keys))[:1+random.IntN(4)]
				names := make([]string, len(chosen))
				for i, c := range chosen {
					names[i] = keys[c]
				}
				lease, err := l.Acquire(t.Context(), names, locking.Options{Notify: time.Second})
				if errors.Is(err, locking.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range chosen {
					if inside[c].Add(1) != 1 {
						t.Errorf("two holders of key %d", c)
					}
				}
				if err := lease.Renew(t.Context()); err != nil {
					t.Error(err)
				}
				for _, c := range chosen {
					inside[c].Add(-1)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	free(t, d.locker(t, pglock.Options{}), keys...)
}

func TestDatabaseDefaultsDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		"default_transaction_isolation = 'repeatable read'", "default_transaction_isolation = 'serializable'",
		"synchronous_commit = off", "TimeZone = 'Asia/Kathmandu'", "IntervalStyle = 'iso_8601'", "bytea_output = 'escape'",
		"search_path = ''",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			d.exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s", d.name, setting))
			one, other := d.locker(t, pglock.Options{}), d.locker(t, pglock.Options{})
			for _, keys := range [][]string{{"a"}, {"a", "b"}} {
				lease := acquire(t, one, locking.Options{}, keys...)
				if _, err := other.Acquire(t.Context(), keys, locking.Options{Notify: time.Minute}); !errors.Is(err, locking.ErrHeld) {
					t.Errorf("%v, want ErrHeld", err)
				}
				tx := d.begin(t, nil)
				if err := errors.Join(lease.Renew(t.Context()), pglock.InTx(t.Context(), tx, lease), tx.Commit()); err != nil {
					t.Error(err)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			expired := acquire(t, one, locking.Options{}, "c")
			expire(t, d.open(t), "c")
			acquire(t, other, locking.Options{}, "c")
			if err := expired.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
				t.Errorf("%v, want ErrLost", err)
			}
		})
	}
}
