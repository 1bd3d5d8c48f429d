package leasing

import "context"

// Lease is what package fence needs of a lease.
type Lease interface {
	// Keys returns the keys of the lease.
	Keys() []string
	// FenceOf returns the fencing token of one of the keys. It may wait until the token is certain.
	FenceOf(ctx context.Context, key string) (int64, error)
}

// Chain is a lease, linked to the one that the parent context carries.
type Chain struct {
	Lease Lease // nil where a context carries none on purpose; Outer is nil then
	Outer *Chain
}

type contextKey struct{}

// With returns a context that carries the lease. With a nil lease it carries none.
func With(ctx context.Context, lease Lease) context.Context {
	if lease == nil {
		return context.WithValue(ctx, contextKey{}, &Chain{})
	}
	return context.WithValue(ctx, contextKey{}, &Chain{Lease: lease, Outer: By(ctx)})
}

// By returns the leases that ctx carries, the innermost first, or nil.
func By(ctx context.Context) *Chain {
	c, _ := ctx.Value(contextKey{}).(*Chain)
	if c == nil || c.Lease == nil {
		return nil
	}
	return c
}
