package contestant

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// railtoken's locks, with their fencing tokens, renewals and holders' names: on one server, and on several with the
// guard against those that have restarted; and both behind the gate where the callers of one process queue.
var (
	Single      = Kind{Name: Railtoken, Open: func(addrs []string) (*Locker, error) { return openSingle(addrs, ours) }}
	Gate        = Kind{Name: Railtoken, Open: func(addrs []string) (*Locker, error) { return openSingle(addrs, behindGate) }}
	Redlock     = Kind{Name: Railtoken, Open: func(addrs []string) (*Locker, error) { return openRedlock(addrs, ours) }}
	GateRedlock = Kind{Name: Railtoken, Open: func(addrs []string) (*Locker, error) { return openRedlock(addrs, behindGate) }}
	// gated is Gate under a name of its own, to show what the gate costs a key that no other caller wants.
	gated = Kind{Name: Railtoken + " gate", Open: Gate.Open}
)

// lockOptions have the TTL of all.
var lockOptions = locking.Options{TTL: TTL}

func openSingle(addrs []string, locker func(locking.Locker, func() error) *Locker) (*Locker, error) {
	client := redis.NewClient(options(addrs[0], 0))
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return locker(single, func() error { return errors.Join(single.Close(), client.Close()) }), nil
}

// openRedlock locks on servers that it trusts only when they have run for longer than the TTL.
func openRedlock(addrs []string, locker func(locking.Locker, func() error) *Locker) (*Locker, error) {
	nodes := make([]*redis.Options, len(addrs))
	for i, addr := range addrs {
		nodes[i] = options(addr, 0)
	}
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: TTL})
	if err != nil {
		return nil, err
	}
	return locker(redlock, redlock.Close), nil
}

func ours(locker locking.Locker, closeLocker func() error) *Locker {
	pair := func(ctx context.Context, key string) error {
		lease, err := locker.Acquire(ctx, []string{key}, lockOptions)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	return &Locker{Pair: pair, Do: doesNotWait, Close: closeLocker}
}

func behindGate(inner locking.Locker, closeInner func() error) *Locker {
	gate := locking.NewGate(inner, locking.GateOptions{})
	l := ours(gate, closeInner)
	l.Do = func(ctx context.Context, key string, hold func()) error {
		return locking.Do(ctx, gate, []string{key}, lockOptions, func(context.Context, *locking.Lease) error {
			hold()
			return nil
		})
	}
	return l
}
