package locks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// railtoken's locks, with their fencing tokens, renewals and holders' names; on several servers with the guard against
// those that have restarted, which trusts them only when they have run for longer than the TTL.
var (
	Plain = Kind{Name: Railtoken, open: railtoken(ours)}
	// Gate is behind the gate where the callers of one process queue.
	Gate = Kind{Name: Railtoken, open: railtoken(behindGate)}
	// gated is Gate under a name of its own, to show what the gate costs a key that no other caller wants.
	gated = Kind{Name: Railtoken + " gate", open: Gate.open}
)

// lockOptions have the TTL of all.
var lockOptions = locking.Options{TTL: TTL}

func railtoken(locker func(locking.Locker, func() error) *Locker) func([]string, int) (*Locker, error) {
	return func(addrs []string, connections int) (*Locker, error) {
		nodes := make([]*redis.Options, len(addrs))
		for i, addr := range addrs {
			nodes[i] = options(addr, connections)
		}
		if len(nodes) > 1 {
			redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: TTL})
			if err != nil {
				return nil, err
			}
			return locker(redlock, redlock.Close), nil
		}
		client := redis.NewClient(nodes[0])
		single, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			return over(client.Close, nil, err)
		}
		return over(client.Close, locker(single, single.Close), nil)
	}
}

func ours(locker locking.Locker, closeLocker func() error) *Locker {
	try := func(ctx context.Context, key string, hold func()) error {
		lease, err := locker.Acquire(ctx, []string{key}, lockOptions)
		if err != nil {
			return err
		}
		hold()
		return lease.Release(ctx)
	}
	return &Locker{Try: try, Close: closeLocker}
}

func behindGate(inner locking.Locker, closeInner func() error) *Locker {
	gate := locking.NewGate(inner, locking.GateOptions{})
	l := ours(gate, closeInner)
	l.Wait = func(ctx context.Context, key string, hold func()) error {
		return locking.Do(ctx, gate, []string{key}, lockOptions, func(context.Context, *locking.Lease) error {
			hold()
			return nil
		})
	}
	return l
}
