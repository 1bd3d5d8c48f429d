package pglock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

var _ backend.UntouchedGrant = (*grant)(nil)

const lastSQL = "SELECT fence, owner FROM railtoken.locks " +
	"WHERE key OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.bytea ORDER BY fence DESC LIMIT 1"

// Untouched reports whether this grant is still the last one of each key: see [backend.UntouchedGrant]. It is false if the
// row of a key was deleted, as that of a dead holder is a minute after its lease has ended.
func (g *grant) Untouched(ctx context.Context) (bool, error) {
	for i, form := range g.stored.forms {
		var fence int64
		var owner []byte
		err := g.store.db.QueryRowContext(ctx, lastSQL, text(form)).Scan(&fence, &owner)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, &locking.OpError{Op: "look at", Keys: g.keys, Err: classify(ctx, g.store.db, err)}
		}
		if fence != g.tokens[g.stored.places[i]] || !bytes.Equal(owner, g.owner) {
			return false, nil
		}
	}
	return true, nil
}
