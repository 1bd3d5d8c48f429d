package locking

import "context"

// Collect takes the keys one after another in sorted order. It keeps the keys that it has while it waits for the next
// one, until ctx ends. Use it for several busy keys that are hardly ever free at the same moment. With a [Gate], a
// caller of Collect is served before all others that wait for its next key.
//
// Collect returns a lease for each key that it has taken, in sorted order. When the error is nil, it has taken all
// keys; otherwise the error is one that [Wait] returns. In both cases the caller must [Join] or release the leases.
//
// Callers of Collect do not deadlock, because all of them take keys in the same order. A caller of [Wait] keeps no key
// while it waits, so it cannot be part of a deadlock.
func Collect(ctx context.Context, l Locker, keys []string, opts Options) ([]*Lease, error) {
	keys, opts, err := prepare(keys, opts)
	if err != nil {
		return nil, err
	}
	leases := make([]*Lease, 0, len(keys))
	for _, key := range keys {
		lease, err := wait(ctx, l, []string{key}, opts, true)
		if err != nil {
			return leases, err
		}
		leases = append(leases, lease)
	}
	return leases, nil
}
