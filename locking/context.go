package locking

import (
	"context"

	"github.com/railtoken/railtoken/internal/leasing"
)

// NewContext returns a context that carries the lease, for [FromContext], [ErrReentrant] and package fence. It does not
// end with the lease: see [Lease.Context]. With a nil lease it carries none, so that work that outlives its handler can
// wait for the handler's keys.
func NewContext(ctx context.Context, lease *Lease) context.Context {
	if lease == nil {
		return leasing.With(ctx, nil)
	}
	return leasing.With(ctx, lease)
}

// FromContext returns the lease that ctx carries. ok is false if there is none.
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	c := leasing.By(ctx)
	if c == nil {
		return nil, false
	}
	lease, ok = c.Lease.(*Lease)
	return lease, ok
}
