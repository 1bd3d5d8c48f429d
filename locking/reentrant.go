package locking

import (
	"context"
	"slices"

	"github.com/railtoken/railtoken/internal/leasecontext"
)

// prepareFor is prepare for an attempt at l. The error matches [ErrReentrant] if ctx carries a lease of l for one of
// the keys.
func prepareFor(ctx context.Context, l Locker, keys []string, opts Options) ([]string, Options, error) {
	keys, opts, err := prepare(keys, opts)
	if err != nil {
		return nil, opts, err
	}
	for c := leasecontext.By(ctx); c != nil; c = c.Outer {
		lease, ok := c.Lease.(*Lease)
		if !ok || !lease.isOf(l) || lease.Err() != nil {
			continue
		}
		for _, key := range keys {
			if _, ok := slices.BinarySearch(lease.keys, key); ok {
				return nil, opts, &OpError{Op: "acquire", Keys: []string{key}, Err: ErrReentrant}
			}
		}
	}
	return keys, opts, nil
}
