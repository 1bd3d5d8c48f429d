package pglock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/railtoken/railtoken/locking"
)

// grant is one acquisition.
type grant struct {
	store  *store
	keys   []string
	stored storedKeys
	owner  []byte
	tokens []int64 // the first of each key's block
	block  int
	ttl    time.Duration
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
	rows, err := release(ctx, g.store.db, []*grant{g})
	if err == nil {
		return g.released(rows)
	}
	if failed := classify(ctx, g.store.db, err); isUndone(err) && !errors.Is(failed, locking.ErrUnavailable) {
		return true, &locking.OpError{Op: "release", Keys: g.keys, Err: failed} // so would another attempt
	}
	if answered := g.store.repeats.add(g, true); answered != nil {
		select {
		case <-answered: // a release that is repeated cannot tell whether another holder has had the key
			return true, nil
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

// releasedRow is a key that was released: its place among those of all grants, in the order of their stored forms.
type releasedRow struct {
	place      int
	subscribed bool
}

const releaseSQL = "SELECT place, subscribed FROM railtoken.release(" +
	"$1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea[])"

// release releases grants in one call. The places of its rows count through all of them.
func release(ctx context.Context, db *sql.DB, grants []*grant) ([]releasedRow, error) {
	var keys, owners [][]byte
	for _, g := range grants {
		for _, form := range g.stored.forms {
			keys, owners = append(keys, form), append(owners, g.owner)
		}
	}
	rows, err := db.QueryContext(ctx, releaseSQL, array(keys), array(owners))
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
