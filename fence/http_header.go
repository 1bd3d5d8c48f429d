package fence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The headers of fenced requests. Business keys are not in them, only their hashes.
const (
	// TokenHeader carries the tokens of a request: a dictionary (RFC 9651, 3.2) of hashed keys and numbers, such as
	// "k4ad5f02c…=1767352225678901".
	TokenHeader = "Fencing-Token"
	// OpHeader carries the operation of a request (draft-ietf-httpapi-idempotency-key-header): a quoted string. Transport
	// sends a hash of the operation and of the keys of the lease.
	OpHeader = "Idempotency-Key"
)

// headerName returns the name of a key in TokenHeader. Names of a dictionary begin with a lowercase letter.
func headerName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "k" + hex.EncodeToString(sum[:16])
}

// formatTokens returns the value of TokenHeader.
func formatTokens(tokens []Token) string {
	members := make([]string, len(tokens))
	for i, t := range tokens {
		members[i] = headerName(t.Key) + "=" + strconv.FormatInt(t.N, 10)
	}
	return strings.Join(members, ", ")
}

// parseToken returns the token of a key in the headers of a request. The error matches ErrNoToken if there is none, and
// ErrInvalid if the header is malformed or has two numbers for the key.
func parseToken(header http.Header, key string) (Token, error) {
	name, found := headerName(key), int64(0)
	for _, value := range header.Values(TokenHeader) {
		for member := range strings.SplitSeq(value, ",") {
			k, v, ok := strings.Cut(strings.Trim(member, " \t"), "=")
			n, err := strconv.ParseInt(v, 10, 64)
			if !ok || err != nil || v[0] == '+' || n < 1 || n > MaxToken {
				return Token{}, invalid("the header %s has %q: want name=number", TokenHeader, member)
			}
			if k != name {
				continue
			}
			if found != 0 && found != n {
				return Token{}, invalid("the header %s has the tokens %d and %d for one key", TokenHeader, found, n)
			}
			found = n
		}
	}
	if found == 0 {
		return Token{}, fmt.Errorf("%w: the header %s has none for this key: send the request through fence.Transport, "+
			"with the context of the locked handler", ErrNoToken, TokenHeader)
	}
	return Token{Key: key, N: found}, nil
}

// hashOp returns the operation of a request as it goes over the wire: it depends on the keys of the lease, so that
// equal names in tasks of different keys do not collide.
func hashOp(tokens []Token, op string) string {
	h := sha256.New()
	for _, t := range tokens {
		fmt.Fprintf(h, "%s ", headerName(t.Key))
	}
	h.Write([]byte(op))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
