package attach

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/railtoken/railtoken/internal/preflight"
)

// Check returns why the Redis of the tasks cannot be used: it cannot be reached, is older than 6.2, a replica or may
// evict keys, or its user lacks ACL rules; the error has the remedy, and for rules the command that adds all of them.
// It takes 5 s at most, and asks no more once all is well.
//
// A server asks by itself before its first fetch. It fetches no task while Check returns an error, and asynq logs that.
// Call Check to fail at the start instead. A Locker of the caller's on another Redis is not checked.
func (a *Attached) Check(ctx context.Context) error {
	queues := slices.Sorted(maps.Keys(a.queues()))
	if len(queues) == 0 {
		queues = []string{"default"}
	}
	a.checking.Lock()
	defer a.checking.Unlock()
	if a.fit {
		return nil
	}
	needs := preflight.Needs{Queues: queues, Locks: len(a.closers) > 0, AllowEviction: a.opts.AllowEviction}
	if a.opts.RedisKeys != nil {
		lock, notify := a.opts.RedisKeys(preflight.Key)
		needs.Locks, needs.RedisKeys = true, []string{lock, notify}
	}
	if err := preflight.Check(ctx, a.client, needs, a.opts.Logger); err != nil {
		return fmt.Errorf("attach: the Redis of the tasks %w", err)
	}
	a.fit = true
	return nil
}
