package pglock

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// argument is an argument that records that its statement may have been sent: the driver asks for the value when it has
// a connection, and cannot send the statement without it.
type argument struct {
	text string
	sent *atomic.Bool
}

// Value implements [driver.Valuer].
func (a argument) Value() (driver.Value, error) {
	a.sent.Store(true)
	return a.text, nil
}

// grant is one acquisition.
type grant struct {
	store  *store
	keys   []string
	stored storedKeys
	owner  []byte
	tokens []int64 // the first of each key's block
	block  int
	ttl    time.Duration
	sent   atomic.Bool // the attempt may have reached the server
}

// text returns bytes as the text of a bytea.
func text(b []byte) string { return `\x` + hex.EncodeToString(b) }

// Fence returns the first token of the i-th key.
func (g *grant) Fence(_ context.Context, i int) (int64, error) { return g.tokens[i], nil }

// Block returns how many consecutive tokens are reserved for each key.
func (g *grant) Block() int { return g.block }

const renewSQL = "SELECT railtoken.renew(" +
	"$1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea, $3::bigint)"

// Renew extends the lease.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	var lost int
	row := g.store.db.QueryRowContext(bounded, renewSQL, array(g.stored.forms), text(g.owner), ttl.Milliseconds())
	err := row.Scan(&lost)
	if err != nil {
		return &locking.OpError{Op: "renew", Keys: g.keys, Err: classify(ctx, g.store.db, err)}
	}
	if lost > 0 {
		return g.lost(g.stored.places[lost-1])
	}
	return nil
}

func (g *grant) lost(place int) error {
	return &locking.LostError{Keys: g.keys[place : place+1], Reason: locking.LossTaken}
}

// Release deletes the keys that are still this grant's. An unanswered release is repeated until the lease has expired,
// and Release waits for that until ctx ends.
func (g *grant) Release(ctx context.Context) (notify bool, err error) {
	defer g.store.clean()
	rows, err := g.release(ctx)
	if err == nil {
		return g.released(rows)
	}
	if failed := classify(ctx, g.store.db, err); isUndone(err) && !errors.Is(failed, locking.ErrUnavailable) {
		return true, &locking.OpError{Op: "release", Keys: g.keys, Err: failed} // so would another attempt
	}
	if repeated := g.store.repeats.add(g, true); repeated != nil {
		select {
		case <-repeated.done: // a release that is repeated cannot tell whether another holder has had the key
			if repeated.err == nil {
				return true, nil
			}
			err = repeated.err
		case <-ctx.Done():
		}
	}
	err = fmt.Errorf("no answer in time: %w", classify(ctx, g.store.db, err))
	return true, &locking.OpError{Op: "release", Keys: g.keys, Err: err}
}

// released returns the outcome of the first release.
func (g *grant) released(rows []releasedRow) (notify bool, err error) {
	for i, place := range g.stored.places {
		j := slices.IndexFunc(rows, func(r releasedRow) bool { return r.place == i })
		if j < 0 {
			err = g.lost(place)
		} else {
			notify = notify || rows[j].subscribed
		}
	}
	return notify, err
}

// releasedRow is a key that was released: its place in the order of the stored forms.
type releasedRow struct {
	place      int
	subscribed bool
}

const releaseSQL = "SELECT place, subscribed FROM railtoken.release(" +
	"$1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea[])"

// release makes the call.
func (g *grant) release(ctx context.Context) ([]releasedRow, error) {
	owners := slices.Repeat([][]byte{g.owner}, len(g.keys))
	rows, err := g.store.db.QueryContext(ctx, releaseSQL, array(g.stored.forms), array(owners))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var released []releasedRow
	for rows.Next() {
		var r releasedRow
		if err := rows.Scan(&r.place, &r.subscribed); err != nil {
			return nil, err
		}
		r.place--
		released = append(released, r)
	}
	return released, rows.Err()
}
