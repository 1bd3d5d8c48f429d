package pglock_test

import (
	"errors"
	"testing"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/pglock"
)

// What the first version had created.
const firstVersion = `
CREATE SCHEMA railtoken;
CREATE TABLE railtoken.installation (one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL DEFAULT gen_random_uuid(), version int NOT NULL);
INSERT INTO railtoken.installation (version) VALUES (1);
CREATE TABLE railtoken.locks (key bytea PRIMARY KEY, owner bytea NOT NULL, label text NOT NULL, since timestamptz NOT NULL,
  ends timestamptz NOT NULL, fence bigint NOT NULL, notify timestamptz NOT NULL);
CREATE SEQUENCE railtoken.fence INCREMENT BY 256 MINVALUE 256 MAXVALUE 9007199254740736 NO CYCLE;
CREATE FUNCTION railtoken.clean() RETURNS void LANGUAGE sql AS '';
INSERT INTO railtoken.locks VALUES
  ('held', 'old', 'holder', now(), now() + interval '1 minute', nextval('railtoken.fence'), '-infinity'),
  ('left', 'older', 'holder', now(), now() - interval '1 second', nextval('railtoken.fence'), '-infinity')`

func TestAnUpdateKeepsHeldKeys(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.exec(t, "DROP SCHEMA railtoken CASCADE")
	d.exec(t, firstVersion)
	for range 2 {
		if err := pglock.Create(t.Context(), d.open(t)); err != nil {
			t.Fatal(err)
		}
		d.exec(t, pglock.Schema())
	}
	l := d.locker(t, pglock.Options{})
	var held *locking.HeldError
	if _, err := l.Acquire(t.Context(), []string{"held"}, locking.Options{}); !errors.As(err, &held) || held.Holder.Fence != 256 {
		t.Errorf("the key of an earlier version: %v, want ErrHeld by the token 256", err)
	}
	token, err := acquire(t, l, locking.Options{}, "left").Fence(t.Context())
	if err != nil || token <= 512 {
		t.Errorf("the token %d (error %v) follows 512", token, err)
	}
	// The holder's program still has the old version.
	if n := d.count(t, "SELECT railtoken.renew(array['held'::bytea], 'old', 60000)"); n != 0 {
		t.Error("the holder cannot renew")
	}
	if n := d.count(t, "SELECT count(*) FROM railtoken.release(array['held'::bytea], array['old'::bytea])"); n != 1 {
		t.Error("the holder cannot release")
	}
	free(t, l, "held")
}

// An operator deletes the row of a lease, and several callers want the key at once.
func TestADeletedRowFreesItsKey(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, query := range []string{"DELETE FROM railtoken.held", "DELETE FROM railtoken.locks", "DELETE FROM railtoken.locks WHERE owner <> ''"} {
		lease := acquire(t, d.locker(t, pglock.Options{}), locking.Options{}, "key")
		d.exec(t, query)
		free(t, d.locker(t, pglock.Options{}), "key")
		if err := lease.Renew(t.Context()); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: the holder's renewal: %v, want ErrLost", query, err)
		}
	}
}
