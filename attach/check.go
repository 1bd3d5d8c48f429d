package attach

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/preflight"
)

// Check returns an error if the Redis of the tasks cannot be used: it cannot be reached, is older than 6.2, is a
// replica, may evict keys, or has a user that lacks ACL rules. The error says how to fix this; for missing rules, it
// contains the command that adds all of them. Check returns a [SeparateLocksError] if another worker of one of the queues
// has its locks elsewhere. Check takes at most 10 s, and once it has succeeded, it returns nil without another check.
//
// A server calls Check before its first fetch, and compares once more where the locks are. Until both succeed, the server
// fetches no task, and asynq logs the error. Call Check yourself to fail at startup instead. A Locker of your own on another Redis is not checked.
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
	needs := preflight.Needs{
		Queues: queues, Lanes: a.lanes.Count() > 0, Locks: len(a.closers) > 0, AllowEviction: a.opts.AllowEviction,
	}
	if a.opts.RedisKeys != nil {
		lock, notify := a.opts.RedisKeys(preflight.Key)
		needs.Locks, needs.RedisKeys = true, []string{lock, notify}
	}
	if err := preflight.Check(ctx, a.client, needs, a.opts.Logger); err != nil {
		return fmt.Errorf("attach: the Redis of the tasks %w", err)
	}
	if err := (*line.Engine)(a.queue).Agreement().Reach(ctx); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := a.reports.compare(ctx, a); err != nil {
		return err
	}
	a.fit = true
	return nil
}
