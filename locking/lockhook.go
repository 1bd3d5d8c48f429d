package locking

import (
	"context"

	"github.com/railtoken/railtoken/internal/lockhook"
)

func init() {
	lockhook.RedisKeys = func(key string, name func(string) string) (lockhook.Keys, error) {
		if name == nil {
			name = lockKey
		}
		all, err := redisKeysOf([]string{key}, name)
		if err != nil {
			return lockhook.Keys{}, err
		}
		return lockhook.Keys{Lock: all[0], Fence: all[1], Notify: all[2]}, nil
	}
	lockhook.Parse = func(value string) lockhook.Owner {
		o := parseOwner(value)
		return lockhook.Owner{Ours: !o.since.IsZero(), Label: o.label, Since: o.since, Block: o.block}
	}
	lockhook.TakeOver = func(ctx context.Context, locker any, r lockhook.Request) (any, error) {
		lease, err := takeOver(ctx, locker, r)
		if err != nil {
			return nil, err
		}
		return lease, nil
	}
	lockhook.Leave = func(lease any) { lease.(*Lease).leave() } //nolint:errcheck,forcetypeassert // TakeOver returned it
	lockhook.Follow, lockhook.Name, lockhook.Record = followDepositions, ownerName, recordKey
}
