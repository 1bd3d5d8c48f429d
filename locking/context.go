package locking

import (
	"context"
	"slices"
)

type contextKey struct{}

// carried is a lease in a context, with those of the outer contexts.
type carried struct {
	lease *Lease
	outer *carried
}

// NewContext returns a context that carries the lease, for [FromContext]. With nil it carries none: work that outlives
// its handler may then lock the handler's keys, and waits until they are released.
func NewContext(ctx context.Context, lease *Lease) context.Context {
	outer, _ := ctx.Value(contextKey{}).(*carried)
	if lease == nil {
		outer = nil
	}
	return context.WithValue(ctx, contextKey{}, &carried{lease, outer})
}

// FromContext returns the lease that a handler runs under. ok is false when ctx carries none.
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	c, ok := ctx.Value(contextKey{}).(*carried)
	if !ok || c.lease == nil {
		return nil, false
	}
	return c.lease, true
}

// prepareFor is prepare for an attempt at l. The error also matches [ErrReentrant] when the context carries a lease of
// l for one of the keys.
func prepareFor(ctx context.Context, l Locker, keys []string, opts Options) ([]string, Options, error) {
	keys, opts, err := prepare(keys, opts)
	if err != nil {
		return nil, opts, err
	}
	for c, _ := ctx.Value(contextKey{}).(*carried); c != nil; c = c.outer {
		if c.lease == nil || !c.lease.isOf(l) || c.lease.Err() != nil {
			continue
		}
		for _, key := range keys {
			if _, ok := slices.BinarySearch(c.lease.keys, key); ok {
				return nil, opts, &OpError{Op: "acquire", Keys: []string{key}, Err: ErrReentrant}
			}
		}
	}
	return keys, opts, nil
}
