package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/railtoken/railtoken/internal/leasing"
	"github.com/railtoken/railtoken/internal/rediswire"
)

// MaxToken is the largest token: 2^53-1, which a float64 holds exactly, so that Lua and JSON do not round it.
const MaxToken = 1<<53 - 1

// Token is the fencing token of a business key: a number that grows with each lease of the key.
type Token struct {
	Key string // any bytes, not empty
	N   int64  // 1 to MaxToken
}

// From returns the fencing token of a key that the caller has locked: in a handler under middleware.Lock, in the
// function of locking.Do, and behind [Handler], where the token comes with the request. Acquire and Wait of package
// locking return a lease that no context carries yet: give From the context that locking.NewContext(ctx, lease) returns.
// If ctx carries several leases, the innermost one with this key counts.
//
// With several lock servers From may wait for them until the token is certain, but no longer than the lease lasts. The
// error matches [ErrNoToken] if ctx carries no lease of the key, and locking.ErrLost if the lease was lost. A lease that
// was released still has its token; the resource refuses it once a later holder has claimed.
func From(ctx context.Context, key string) (Token, error) {
	if t, ok := ctx.Value(receivedKey{}).(received); ok && t.token.Key == key {
		return t.token, nil
	}
	for c := leasing.By(ctx); c != nil; c = c.Outer {
		for _, k := range c.Lease.Keys() {
			if k != key {
				continue
			}
			n, err := c.Lease.FenceOf(ctx, key)
			if err != nil {
				return Token{}, fmt.Errorf("fence: token of key %q: %w", key, err)
			}
			t := Token{Key: key, N: n}
			return t, t.validate()
		}
	}
	return Token{}, fmt.Errorf("%w: the context carries no lease of key %q: use the context that the locked handler gets, "+
		"or locking.NewContext for a lease of your own", ErrNoToken, key)
}

// validate returns an error that matches ErrInvalid for a token that no lease can have.
func (t Token) validate() error {
	switch {
	case t.Key == "":
		return invalid("the token has no key")
	case t.N < 1 || t.N > MaxToken:
		return invalid("token %d of key %q is not in 1 to 2^53-1", t.N, t.Key)
	}
	return nil
}

// maxName is how long the name of a key in a store may be.
const maxName = 255

// storedName returns the name of a key or an operation in a store: printable ASCII of at most maxName bytes, which
// every store compares byte by byte whatever its collation. Different keys have different names. Those of usual keys
// are the keys themselves, so that an operator can read them; a long one ends in a hash.
func storedName(key string) string {
	name := rediswire.Encode(key)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(key))
	hash := "%%" + hex.EncodeToString(sum[:]) // no encoded key has two percent signs in a row
	return name[:maxName-len(hash)] + hash
}
