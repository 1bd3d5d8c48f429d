package contestant

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Redlock is our lock on several independent servers, with its guard against those that have restarted.
var Redlock = Kind{Name: Railtoken, Aged: TTL, Open: func(addrs []string) (Locker, error) {
	redlock, err := newRedlock(addrs)
	if err != nil {
		return nil, err
	}
	return ours{Locker: redlock, close: redlock.Close}, nil
}}

func newRedlock(addrs []string) (*locking.Redlock, error) {
	nodes := make([]*redis.Options, len(addrs))
	for i, addr := range addrs {
		nodes[i] = options(addr, 0)
	}
	return locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: TTL})
}

// Gate is our lock on one server behind the gate where the callers of one process stand in line.
var Gate = Kind{Name: Railtoken, Open: func(addrs []string) (Locker, error) {
	client, single, err := newSingle(addrs)
	if err != nil {
		return nil, err
	}
	return behindGate(single, func() error { return errors.Join(single.Close(), client.Close()) }), nil
}}

// GateRedlock is our lock on several servers behind the same gate.
var GateRedlock = Kind{Name: Railtoken, Aged: TTL, Open: func(addrs []string) (Locker, error) {
	redlock, err := newRedlock(addrs)
	if err != nil {
		return nil, err
	}
	return behindGate(redlock, redlock.Close), nil
}}

// gated is Gate under a name of its own, to show what the gate costs a key that nobody else wants.
var gated = Kind{Name: Railtoken + " gate", Open: Gate.Open}

func behindGate(inner locking.Locker, closeInner func() error) Locker {
	gate := locking.NewGate(inner, locking.GateOptions{})
	return ours{
		Locker: gate,
		do: func(ctx context.Context, key string, hold func()) error {
			return locking.Do(ctx, gate, []string{key}, lockOptions, func(context.Context, *locking.Lease) error {
				hold()
				return nil
			})
		},
		close: closeInner,
	}
}
