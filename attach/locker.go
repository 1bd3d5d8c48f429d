package attach

import (
	"context"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockaccess"
	"github.com/railtoken/railtoken/internal/logsafe"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// locks does what package locking does not export.
var locks = lockaccess.Of[locking.Locker, locking.Options, *locking.Lease]()

// Locker returns a Locker for work on the same keys outside of tasks, such as an HTTP request. The release of one of
// its leases wakes the next task that waits for each key, as the end of a task does; no call of Queue().Wake is needed.
// While Redis cannot be reached, Release therefore takes up to 5 s longer. Leases of a Locker that was set in Options
// wake no task if that Locker is used directly.
func (a *Attached) Locker() locking.Locker { return a.outside }

// follow returns the Locker for work outside of tasks. Tasks use the inner Locker, because their middleware wakes.
func (a *Attached) follow(inner locking.Locker) locking.Locker {
	return locks.OnRelease(inner, a.wakeNext)
}

// wakeNext wakes the next task of each key after a release.
func (a *Attached) wakeNext(keys []string) {
	ctx, engine := context.Background(), (*line.Engine)(a.queue)
	for _, key := range keys {
		woken, err := line.Retry(ctx, a.stopping, func(ctx context.Context) (line.Woken, error) {
			return engine.WakeNext(ctx, key, line.WakeOptions{})
		})
		if err != nil {
			a.opts.Logger.WarnContext(ctx, "waking the next task failed", "result",
				"the next task was not woken; the wake is made again once Redis answers", "keys", logsafe.Keys([]string{key}), "error", err)
		}
		for _, next := range woken.Tasks {
			tell(ctx, a.opts.Observer, a.opts.Logger, &middleware.Event{
				Kind: middleware.Woke, Key: key, Cause: middleware.ByRelease, Next: delayqueue.Task(next),
			})
		}
	}
}
