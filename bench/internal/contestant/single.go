package contestant

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// Single is our lock on one server, with its fencing token, its renewal and its holder's name.
var Single = Kind{Name: Railtoken, Open: func(addrs []string) (Locker, error) {
	client, inner, err := newSingle(addrs)
	if err != nil {
		return nil, err
	}
	return ours{Locker: inner, close: func() error { return errors.Join(inner.Close(), client.Close()) }}, nil
}}

func newSingle(addrs []string) (*redis.Client, *locking.Single, error) {
	client := redis.NewClient(options(addrs[0], 0))
	single, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, single, nil
}

// lockOptions have the TTL of all.
var lockOptions = locking.Options{TTL: TTL}

// ours is a Locker of this repository.
type ours struct {
	locking.Locker
	// do waits; nil when this one cannot.
	do    func(ctx context.Context, key string, hold func()) error
	close func() error
}

// Pair acquires and releases.
func (o ours) Pair(ctx context.Context, key string) error {
	lease, err := o.Acquire(ctx, []string{key}, lockOptions)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// Do waits by locking.Do.
func (o ours) Do(ctx context.Context, key string, hold func()) error {
	if o.do == nil {
		return errors.ErrUnsupported
	}
	return o.do(ctx, key, hold)
}

// Close ends the connections.
func (o ours) Close() error { return o.close() }
