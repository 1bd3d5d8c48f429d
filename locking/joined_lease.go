package locking

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Join combines several leases into one and takes ownership of them, so the caller must not use them any more. The
// joined lease is renewed and released with its parts, and lost as soon as one of them is lost.
//
// Join renews the parts, so that the joined lease lasts for the TTL of opts from now. If that fails, Join returns the
// error of the renewal, and the caller must still release the leases. It is an error to join no leases, or leases that
// have a key in common.
func Join(ctx context.Context, leases []*Lease, opts Options) (*Lease, error) {
	var keys []string
	for _, part := range leases {
		keys = append(keys, part.keys...)
	}
	sorted, opts, err := prepare(keys, opts)
	if err != nil {
		return nil, err
	}
	if len(sorted) != len(keys) {
		return nil, errors.New("locking: leases that are joined share a key: two leases of one key cannot both be good")
	}
	grant := &joinedGrant{parts: leases, keys: sorted}
	began := leases[0].suspension.now()
	if err := grant.Renew(ctx, opts.TTL); err != nil {
		return nil, err
	}
	joined, err := newLease(ctx, grant, sorted, opts, began)
	if err != nil {
		return nil, err
	}
	for _, part := range leases {
		context.AfterFunc(part.Context(context.Background()), func() {
			joined.mu.Lock()
			defer joined.mu.Unlock()
			joined.end(part.Err())
		})
	}
	return joined, nil
}

// joinedGrant is the grant of a joined lease.
type joinedGrant struct {
	parts []*Lease
	keys  []string
}

// Fence returns the token of the part that has the i-th key.
func (g *joinedGrant) Fence(ctx context.Context, i int) (int64, error) {
	for _, part := range g.parts {
		if slices.Contains(part.keys, g.keys[i]) {
			return part.FenceOf(ctx, g.keys[i])
		}
	}
	panic("locking: a joined lease has a key that none of its parts has")
}

// Renew renews each part for its own TTL.
func (g *joinedGrant) Renew(ctx context.Context, _ time.Duration) error {
	return g.each(func(part *Lease) error { return part.Renew(ctx) })
}

// Release releases each part, even if the release of another one fails.
func (g *joinedGrant) Release(ctx context.Context) (notify bool, err error) {
	err = g.each(func(part *Lease) error { return part.Release(ctx) })
	return slices.ContainsFunc(g.parts, (*Lease).ShouldNotify), err
}

// lost returns why a part is over, or nil. It prefers a part whose key another holder has had.
func (g *joinedGrant) lost() (first error) {
	for _, part := range g.parts {
		err := part.Err()
		if isTaken(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// isTaken reports whether err says that another holder has had the key.
func isTaken(err error) bool {
	loss, ok := errors.AsType[*LostError](err)
	return ok && (loss.Reason == LossTaken || loss.Reason == LossDeposed)
}

// each calls f for all parts concurrently and joins their errors, with those of keys that another holder has had first.
func (g *joinedGrant) each(f func(*Lease) error) error {
	errs := make([]error, len(g.parts))
	var all sync.WaitGroup
	for i, part := range g.parts {
		all.Go(func() { errs[i] = f(part) })
	}
	all.Wait()
	taken := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return !isTaken(err) })
	return errors.Join(append(taken, slices.DeleteFunc(errs, isTaken)...)...)
}

func (g *joinedGrant) isOf(l Locker) bool {
	return slices.ContainsFunc(g.parts, func(part *Lease) bool { return part.isOf(l) })
}

func (g *joinedGrant) hasOwner(value string) bool {
	return slices.ContainsFunc(g.parts, func(part *Lease) bool { return part.hasOwner(value) })
}

// Untouched asks each part.
func (g *joinedGrant) Untouched(ctx context.Context) (bool, error) {
	for _, part := range g.parts {
		if ours, err := part.untouched(ctx); err != nil || !ours {
			return false, err
		}
	}
	return true, nil
}
