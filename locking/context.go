package locking

import "context"

type contextKey struct{}

// carried is the lease that a context carries, linked to those of its parents.
type carried struct {
	lease *Lease
	outer *carried
}

// NewContext returns a context that carries the lease, for [FromContext] and [ErrReentrant]. It does not end with the
// lease: see [Lease.Context]. With a nil lease it carries none, so that work that outlives its handler can wait for the
// handler's keys.
func NewContext(ctx context.Context, lease *Lease) context.Context {
	outer, _ := ctx.Value(contextKey{}).(*carried)
	if lease == nil {
		outer = nil
	}
	return context.WithValue(ctx, contextKey{}, &carried{lease, outer})
}

// FromContext returns the lease that ctx carries. ok is false if there is none.
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	c, ok := ctx.Value(contextKey{}).(*carried)
	if !ok || c.lease == nil {
		return nil, false
	}
	return c.lease, true
}
