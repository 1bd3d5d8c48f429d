package fence

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Handler checks the fencing tokens of requests before next sees them. keyOf returns the key that a request changes, as
// the client has locked it, or an empty string for a request that changes nothing, which passes unchecked.
//
// claim raises the token of the key, and refuses an earlier one: for example
//
//	func(ctx context.Context, t fence.Token) error { return guard.Do(ctx, db, []fence.Token{t}, nil) }
//
// A request whose effect is in the same database needs no claim of its own: with a nil claim, next claims in the
// transaction of the effect, and answers errors with [Problem]. It finds the token with [From], and the operation with
// [Op].
//
// A request without a token is answered with 428 (Precondition Required), one with a malformed token with 400, and one
// with an earlier token with 412 (Precondition Failed), each with a body of the type application/problem+json (RFC
// 9457).
func Handler(next http.Handler, keyOf func(r *http.Request) string, claim func(ctx context.Context, t Token) error) http.Handler {
	if next == nil || keyOf == nil {
		panic("fence: Handler needs a handler and a function that returns the key of a request")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := keyOf(r)
		if key == "" {
			next.ServeHTTP(w, r)
			return
		}
		t, err := parseToken(r.Header, key)
		if err == nil && claim != nil {
			err = claim(r.Context(), t)
		}
		if err != nil {
			Problem(w, err)
			return
		}
		ctx := context.WithValue(r.Context(), receivedKey{}, received{t})
		if op := strings.Trim(r.Header.Get(OpHeader), `"`); op != "" {
			ctx = WithOp(ctx, op)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// problem is the body of an answer.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Token  int64  `json:"token,omitempty"`
	Seen   int64  `json:"seen,omitempty"`
}

// problems are the errors that a client learns of. Nothing else of an error goes over the wire.
var problems = []struct {
	err    error
	uri    string
	status int
}{
	{ErrFenced, "tag:railtoken,2026:fenced", http.StatusPreconditionFailed},
	{ErrApplied, "tag:railtoken,2026:applied", http.StatusConflict},
	{ErrNoToken, "tag:railtoken,2026:no-token", http.StatusPreconditionRequired},
	{ErrInvalid, "tag:railtoken,2026:invalid", http.StatusBadRequest},
	{ErrRetry, "tag:railtoken,2026:retry", http.StatusServiceUnavailable},
}

// Problem answers a request with an error: 412 for [ErrFenced], 409 for [ErrApplied], 428 for [ErrNoToken], 400 for
// [ErrInvalid], 503 with Retry-After for [ErrRetry], and 500 for any other. The body says no more than that, and never
// names a key; for ErrFenced it contains both tokens. [ResponseError] turns it back into an error.
func Problem(w http.ResponseWriter, err error) {
	p := problem{Type: "about:blank", Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			p = problem{Type: known.uri, Title: known.err.Error(), Status: known.status}
			break
		}
	}
	if fenced, ok := errors.AsType[*FencedError](err); ok {
		p.Token, p.Seen = fenced.Token, fenced.Seen
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client has gone if this fails
}
