package locking

import "context"

type contextKey struct{}

// NewContext returns a context that carries the lease, for [FromContext].
func NewContext(ctx context.Context, lease *Lease) context.Context {
	return context.WithValue(ctx, contextKey{}, lease)
}

// FromContext returns the lease that a handler runs under. ok is false when ctx is not that of such a handler.
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(contextKey{}).(*Lease)
	return lease, ok
}
