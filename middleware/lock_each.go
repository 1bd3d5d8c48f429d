package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/railtoken/railtoken/locking"
)

const (
	// collectAfter is the number of refusals after which a task with several keys collects them.
	collectAfter = 2
	// leastCollect and mostCollect limit how long collecting may take.
	leastCollect = 3 * time.Second
	mostCollect  = time.Minute
	// markAfter is how much longer the mark of a task that collects lasts if its process ends.
	markAfter = 5 * time.Second
)

// collectTime returns how long a task may keep some of its keys while it waits for the others: enough for two holders
// of each key, but not so long that the handler lacks time. hold is how long a key is held on average, and left is the
// time before the deadline, or MaxHold if that is less. A result of zero or less leaves no time to collect.
func collectTime(keys int, hold, left time.Duration) time.Duration {
	most := min(max(2*time.Duration(keys)*hold, leastCollect), mostCollect)
	return min(most, left/4, left-2*hold)
}

// collectTime returns how long the task may collect its keys.
func (r *run) collectTime(ctx context.Context, hold time.Duration) time.Duration {
	left := cmp.Or(r.opts.MaxHold, locking.DefaultMaxHold)
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return collectTime(len(r.keys), hold, left)
}

// endsWithin reports whether a holder that has had its key for some time is expected to release it within a limit: after
// the mean hold, or, if it has had the key for longer already, after as much time again.
func endsWithin(limit, hold, held time.Duration) bool {
	left := held
	if held < hold {
		left = hold - held
	}
	return left <= limit
}

// endsSoon reports whether the holder of a key is expected to release it while the task may collect its keys.
func (r *run) endsSoon(ctx context.Context, held *locking.HeldError) bool {
	var since time.Duration
	if !held.Holder.Since.IsZero() {
		since = max(time.Since(held.Holder.Since), 0)
	}
	hold := r.meanHold()
	return endsWithin(r.collectTime(ctx, hold), hold, since)
}

// lockEach locks the keys one after another until waiting ends, and keeps those that it has while it waits in its slot
// for the next. If they were locked all at once or not at all, many busy keys would hardly ever be free together, and
// other tasks would always overtake this one. All tasks lock their keys in the same order, so they cannot wait for each
// other in a circle. It waits for no holder that will not end soon, and few tasks do this at a time, so few keys are idle.
// In the end it has all keys, or it releases those that it has.
func (r *run) lockEach(ctx, waiting context.Context) (*locking.Lease, error) {
	var leases []*locking.Lease
	var err error
	for _, key := range sortedKeys(r.keys) {
		var lease []*locking.Lease
		if lease, err = r.lockOne(ctx, waiting, key); err != nil {
			break
		}
		leases = append(leases, lease...)
	}
	if err == nil {
		var lease *locking.Lease
		if lease, err = locking.Join(ctx, leases, r.opts); err == nil {
			return lease, nil
		}
	}
	r.giveUpKeys(ctx, leases...)
	return nil, err
}

// lockOne locks one of the keys that a task collects.
func (r *run) lockOne(ctx, waiting context.Context, key string) ([]*locking.Lease, error) {
	lease, err := r.Locker.Acquire(waiting, []string{key}, r.options())
	if err == nil {
		return []*locking.Lease{lease}, nil
	}
	if held, ok := errors.AsType[*locking.HeldError](err); ok && !r.endsSoon(ctx, held) {
		return nil, err
	}
	return locking.Collect(waiting, r.Locker, []string{key}, r.options())
}

// untilStopping returns a context that ends at the given time, or when the server begins to shut down.
func (r *run) untilStopping(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	waiting, cancel := context.WithDeadline(ctx, end)
	if r.Stopping != nil {
		go func() {
			select {
			case <-r.Stopping:
				cancel()
			case <-waiting.Done():
			}
		}()
	}
	return waiting, cancel
}
