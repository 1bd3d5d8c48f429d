package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Fence returns the fencing token of the first of [Lease.Keys]: a positive number below 2^53 that is larger than the
// token of every earlier lease of the key. Fence waits until the token is certain; on a single server it is certain at
// once. The error matches [ErrLost] if the lease was lost.
func (l *Lease) Fence(ctx context.Context) (int64, error) { return l.fence(ctx, 0) }

// FenceOf returns the fencing token of one of the lease's keys: see [Lease.Fence]. It returns an error if the lease is
// not for that key.
func (l *Lease) FenceOf(ctx context.Context, key string) (int64, error) {
	if l == nil {
		return 0, ErrReleased
	}
	i, ok := slices.BinarySearch(l.keys, key)
	if !ok {
		return 0, fmt.Errorf("locking: no token for key %q: this lease is for %q", key, l.keys)
	}
	return l.fence(ctx, i)
}

// fence returns the token of the i-th key. It waits no longer than the lease lasts.
func (l *Lease) fence(ctx context.Context, i int) (int64, error) {
	if l == nil {
		return 0, ErrReleased
	}
	token, err := l.grant.Fence(ended, i) // succeeds if the token is certain, which it nearly always is
	if err != nil {
		during, drop := l.during(ctx)
		defer drop()
		if token, err = l.grant.Fence(during, i); err != nil {
			return 0, cmp.Or(l.Err(), err)
		}
	}
	// A token that became certain after the end of the lease may be smaller than those of later leases.
	if err := l.Err(); errors.Is(err, ErrLost) {
		return 0, err
	}
	return token + l.offset, nil
}
