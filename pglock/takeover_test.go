package pglock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// An attempt for a released key finds it free, and waits for another attempt that has taken it and commits only then.
func TestAnAttemptBehindAFasterOneIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{})
	first := acquire(t, l, locking.Options{}, "key")
	before, err := first.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	faster := d.begin(t, nil)
	var token int64
	const take = "SELECT token FROM railtoken.acquire('{key}', 'faster', 'faster', 30000, 0)"
	if err := faster.QueryRowContext(t.Context(), take).Scan(&token); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context(), []string{"key"}, locking.Options{})
		refused <- err
	}()
	const waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for d.count(t, waits) == 0 {
		select {
		case err := <-refused:
			t.Fatalf("the second attempt does not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := faster.Commit(); err != nil {
		t.Fatal(err)
	}
	held, ok := errors.AsType[*locking.HeldError](<-refused)
	if !ok || held.Holder.Label != "faster" || held.Holder.Fence != token || token <= before {
		t.Errorf("the second attempt: %+v, want it refused by the token %d, above %d", held, token, before)
	}
}
