package pglock_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/railtoken/railtoken/internal/testing/dbtest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// Any two keys are locked apart, whatever their bytes, and the refusal names the key as it is.
func FuzzKeys(f *testing.F) {
	long := strings.Repeat("x", 1024)
	for _, pair := range [][2]string{
		{"order:1", "order:2"},
		{"", "\x00"},
		{`'; DROP SCHEMA railtoken; --`, `"`},
		{`\`, `\\`},
		{`{"a",NULL}`, "NULL"},
		{"\xff\xfe", "ä"},
		{long, long + "x"},
		{long + "x", long + "y"},
		{long, string(pglock.Stored(long + "x"))},
		{"$1", "%s"},
	} {
		f.Add(pair[0], pair[1])
	}
	server := dbtest.SharedPostgres(f)
	db := open(f, server.URL(server.Database(f)))
	if err := pglock.Create(f.Context(), db); err != nil {
		f.Fatal(err)
	}
	l := newLocker(f, db, pglock.Options{})
	f.Fuzz(func(t *testing.T, a, b string) {
		if bytes.Equal(pglock.Stored(a), pglock.Stored(b)) != (a == b) {
			t.Fatalf("%.40q and %.40q are stored alike: %v", a, b, a != b)
		}
		lease := acquire(t, l, locking.Options{Label: a}, a)
		_, err := l.Acquire(t.Context(), []string{a, b}, locking.Options{})
		if held, ok := errors.AsType[*locking.HeldError](err); !ok || held.Key != a {
			t.Fatalf("a held key: %v", err)
		}
		if a != b {
			if err := acquire(t, l, locking.Options{}, b).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestALabelOfAnyBytesIsStored(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	l := d.locker(t, pglock.Options{Label: "worker\x00\xff" + strings.Repeat("x", 5000)})
	acquire(t, l, locking.Options{}, "key")
	_, err := l.Acquire(t.Context(), []string{"key"}, locking.Options{})
	held, ok := errors.AsType[*locking.HeldError](err)
	if !ok || !strings.HasPrefix(held.Holder.Label, "worker??x") || len(held.Holder.Label) > 200 {
		t.Errorf("%v", err)
	}
}
