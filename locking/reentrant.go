package locking

import (
	"context"
	"slices"
)

// prepareFor is prepare for an attempt at l. The error matches [ErrReentrant] if ctx carries a lease of l for one of
// the keys.
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
