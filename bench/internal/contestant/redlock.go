package contestant

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Redlock is our lock on several independent servers, with its guard against those that have restarted.
var Redlock = Kind{Name: Railtoken, Aged: TTL, Open: func(addrs []string) (Locker, error) {
	nodes := make([]*redis.Options, len(addrs))
	for i, addr := range addrs {
		nodes[i] = options(addr)
	}
	redlock, err := locking.NewRedlock(nodes, locking.RedlockOptions{MaxTTL: TTL})
	if err != nil {
		return nil, err
	}
	return ours{Locker: redlock, close: redlock.Close}, nil
}}

// Gate is our lock on one server behind the gate where the callers of one process stand in line.
var Gate = Kind{Name: Railtoken, Open: func(addrs []string) (Locker, error) {
	client, single, err := newSingle(addrs)
	if err != nil {
		return nil, err
	}
	gate := locking.NewGate(single, locking.GateOptions{})
	return ours{
		Locker: gate,
		do: func(ctx context.Context, key string, hold func()) error {
			return locking.Do(ctx, gate, []string{key}, lockOptions, func(context.Context, *locking.Lease) error {
				hold()
				return nil
			})
		},
		close: func() error { return errors.Join(single.Close(), client.Close()) },
	}, nil
}}

// gated is the same under a name of its own, to show what the gate costs a key that nobody else wants.
var gated = Kind{Name: Railtoken + " gate", Open: Gate.Open}

func init() {
	OneNode = append(OneNode, gated)
	FiveNodes = append([]Kind{Redlock}, FiveNodes...)
	Contended = append([]Kind{Gate}, Contended...)
}
