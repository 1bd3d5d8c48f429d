package pglock

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/locking/backend"
)

const ownerSize = 20 // 160 random bits

// busy is how long the lease of a key seems to last whose own time is over, while a transaction still holds it by InTx.
const busy = time.Second

// acquireSQL passes the keys as text, which every driver can. Like all statements of this package, it calls a function
// that sets its search_path, and names the schema of every type: other users of the database may own objects in a schema
// of the session's search_path.
const acquireSQL = "SELECT held, place, token, holder, age, remaining " +
	"FROM railtoken.acquire($1::pg_catalog.text::pg_catalog.bytea[], $2::pg_catalog.text::pg_catalog.bytea, " +
	"$3::pg_catalog.text, $4::bigint, $5::bigint)"

// Acquire makes one attempt: see [backend.Backend].
func (s *store) Acquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	if s.closed.Load() {
		return nil, &locking.OpError{Op: "acquire", Keys: r.Keys, Err: errClosed}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, &locking.OpError{Op: "acquire", Keys: r.Keys, Err: err}
	}
	g := &grant{store: s, keys: r.Keys, stored: newStoredKeys(r.Keys), block: r.Block, ttl: r.TTL}
	g.owner = make([]byte, ownerSize)
	_, _ = rand.Read(g.owner) // never fails
	bounded, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	held, err := g.acquire(bounded, r.Label, r.Notify)
	if err != nil {
		if g.sent.Load() && !isUndone(err) { // the server may have granted it, or may do so later
			s.repeats.add(g, false)
		}
		return nil, &locking.OpError{Op: "acquire", Keys: r.Keys, Err: classify(ctx, s.db, err)}
	}
	if held != nil {
		return nil, held
	}
	return g, nil
}

// acquire makes the call.
func (g *grant) acquire(ctx context.Context, label string, notify time.Duration) (*locking.HeldError, error) {
	rows, err := g.store.db.QueryContext(ctx, acquireSQL,
		argument{array(g.stored.forms), &g.sent}, text(g.owner), label, g.ttl.Milliseconds(), notify.Milliseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	g.tokens = make([]int64, len(g.keys))
	granted := 0
	for rows.Next() {
		var held bool
		var place int
		var token, age, remaining int64
		var holder string
		if err := rows.Scan(&held, &place, &token, &holder, &age, &remaining); err != nil {
			return nil, err
		}
		place = g.stored.places[place-1]
		if held {
			left := time.Duration(remaining) * time.Millisecond
			if left <= 0 {
				left = busy
			}
			// The server's clock may differ from ours, so that only differences count.
			since := time.Now().Add(-time.Duration(age) * time.Millisecond)
			refusal := &locking.HeldError{Key: g.keys[place], Holder: locking.Holder{
				Label: holder, Since: since, Fence: token, Remaining: left,
			}}
			return refusal, rows.Close()
		}
		g.tokens[place] = token
		granted++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if granted != len(g.keys) {
		return nil, fmt.Errorf("the server granted %d of %d keys", granted, len(g.keys))
	}
	return nil, nil //nolint:nilnil // granted
}
