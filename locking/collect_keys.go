package locking

import "context"

// Collect takes the keys one after another in sorted order, and keeps those that it has while it waits for the next one
// until ctx ends. It is for a caller of several busy keys that would hardly ever find all of them free at the same
// moment. At a [Gate] it goes before every other caller that waits for the next key.
//
// It returns a lease for each key that it has taken, in sorted order: for every key with a nil error, else for as many
// as it had when it gave up, with the error of [Wait]. The leases are the caller's: [Join] them, or release them.
//
// Callers that all take several keys by Collect do not deadlock, because the order is the same for all. A caller of
// [Wait] keeps no key while it waits, so it blocks none of them for good.
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
