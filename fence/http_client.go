package fence

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/railtoken/railtoken/internal/leasing"
)

// Transport is an [http.RoundTripper] that sends the fencing tokens of the lease that the request's context carries:
// those of all keys of the innermost lease. If [WithOp] has named the operation, it also sends an Idempotency-Key,
// unless the request has one. That header is the same when the task runs again, with a larger token; net/http repeats
// such a request by itself when its connection breaks. A request without a lease is sent unchanged.
//
// A Transport is safe for concurrent use if its Base is.
type Transport struct {
	Base http.RoundTripper // http.DefaultTransport when nil
}

// RoundTrip sends the request with its tokens. It fails, without sending it, if a token is not available, for example
// because the lease was lost. A released lease still has its token, as with [From].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or[http.RoundTripper](t.Base, http.DefaultTransport)
	ctx := r.Context()
	chain := leasing.By(ctx)
	if chain == nil {
		return base.RoundTrip(r)
	}
	var tokens []Token
	for _, key := range slices.Sorted(slices.Values(chain.Lease.Keys())) { // the operation's name depends on the order
		token, err := From(ctx, key)
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as a RoundTripper must
			}
			return nil, err
		}
		tokens = append(tokens, token)
	}
	r = r.Clone(ctx)
	r.Header.Set(TokenHeader, formatTokens(tokens))
	if op := Op(ctx); op != "" && r.Header.Get(OpHeader) == "" {
		r.Header.Set(OpHeader, `"`+hashOp(tokens, op)+`"`)
	}
	return base.RoundTrip(r)
}

// ResponseError returns the error that a server behind [Handler] has answered with [Problem]: one that matches
// [ErrFenced], [ErrApplied], [ErrNoToken], [ErrInvalid] or [ErrRetry]. It returns nil for any other response. It reads
// the body only if the body is a problem, and leaves closing it to the caller.
func ResponseError(r *http.Response) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != problemType {
		return nil //nolint:nilerr // no problem of ours
	}
	var p problem
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&p); err != nil {
		return nil //nolint:nilerr // a problem of another kind
	}
	for _, known := range problems {
		if p.Type != known.uri {
			continue
		}
		if errors.Is(known.err, ErrFenced) {
			return &FencedError{Token: p.Token, Seen: p.Seen}
		}
		return known.err
	}
	return nil
}
