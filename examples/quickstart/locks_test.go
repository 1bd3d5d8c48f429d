package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/locking"
)

// locksWithoutTasks is shown by README. It is compiled and not run, because there are no servers at these addresses.
func locksWithoutTasks(ctx context.Context, save func(ctx context.Context, token int64) error) error {
	locker, err := locking.NewRedlock([]*redis.Options{{Addr: "10.0.0.1:6379"}, {Addr: "10.0.0.2:6379"}, {Addr: "10.0.0.3:6379"}},
		locking.RedlockOptions{})
	if err != nil {
		return err
	}
	defer locker.Close()
	gate := locking.NewGate(locker, locking.GateOptions{}) // one process, one queue per key: waiters are served in memory
	return locking.Do(ctx, gate, []string{"order:1042"}, locking.Options{}, func(ctx context.Context, lease *locking.Lease) error {
		token, err := lease.Fence(ctx) // larger than every earlier one, even with several servers
		if err != nil {
			return err
		}
		return save(ctx, token)
	})
}

var _ = locksWithoutTasks
