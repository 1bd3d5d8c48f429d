package locking

import (
	"context"
	"slices"

	"github.com/railtoken/railtoken/internal/leasing"
)

// prepareFor is prepare for an attempt at l. The error matches [ErrReentrant] if ctx carries a lease of l for one of
// the keys.
func prepareFor(ctx context.Context, l Locker, keys []string, opts Options) ([]string, Options, error) {
	keys, opts, err := prepare(keys, opts)
	if err != nil {
		return nil, opts, err
	}
	if lease, key := carried(ctx, keys, func(lease *Lease) bool { return lease.isOf(l) }); lease != nil {
		return nil, opts, reentrant(key)
	}
	return keys, opts, nil
}

// carried returns the innermost lease of one of the keys that ctx carries and for which is holds, and that key; nil for
// none. Leases that are over do not count.
func carried(ctx context.Context, keys []string, is func(*Lease) bool) (*Lease, string) {
	for c := leasing.By(ctx); c != nil; c = c.Outer {
		lease, ok := c.Lease.(*Lease)
		if !ok || lease == nil || !is(lease) || lease.Err() != nil {
			continue
		}
		for _, key := range keys {
			if _, ok := slices.BinarySearch(lease.keys, key); ok {
				return lease, key
			}
		}
	}
	return nil, ""
}

func reentrant(key string) error {
	return &OpError{Op: "acquire", Keys: []string{key}, Err: ErrReentrant}
}

// carriesAny reports whether ctx carries a lease of one of the keys, of whatever Locker.
func carriesAny(ctx context.Context, keys []string) bool {
	lease, _ := carried(ctx, keys, func(*Lease) bool { return true })
	return lease != nil
}

// reentry returns an error that matches [ErrReentrant] if the holder that has refused an attempt is a lease that ctx
// carries, and nil otherwise. That lease comes from another Locker on the same servers: prepareFor finds those of the
// same one. value is that of the lock in Redis, which no two leases have in common; empty for other backends.
func reentry(ctx context.Context, held *HeldError, value string) error {
	lease, key := carried(ctx, []string{held.Key}, func(lease *Lease) bool {
		if value != "" {
			return lease.hasOwner(value)
		}
		i, ok := slices.BinarySearch(lease.keys, held.Key)
		if !ok || held.Holder.Fence == 0 {
			return false
		}
		first, err := lease.grant.Fence(ended, i)
		return err == nil && first == held.Holder.Fence
	})
	if lease != nil {
		return reentrant(key)
	}
	return nil
}

// hasOwner reports whether value is that of the lease's locks in Redis.
func (l *Lease) hasOwner(value string) bool {
	g, ok := l.grant.(interface{ hasOwner(value string) bool })
	return ok && g.hasOwner(value)
}

// isOf reports whether l comes from a Locker.
func (l *Lease) isOf(locker Locker) bool {
	type owned interface{ isOf(l Locker) bool }
	l.mu.Lock()
	holder, ok := l.holder.(owned)
	l.mu.Unlock()
	if ok && holder.isOf(locker) {
		return true
	}
	grant, ok := l.grant.(owned)
	return ok && grant.isOf(locker) || l.from != nil && l.from == locker
}
