package middleware

import (
	"context"
	"slices"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
)

// wakeTimeout is the maximum duration of the wakes after a release.
const wakeTimeout = 5 * time.Second

// wakeWaiters wakes the next task of each released key that may have waiters, all in one round trip, unless the
// acknowledgement has woken it.
func (r *run) wakeWaiters(ctx context.Context, lease *locking.Lease) {
	r.noteHold()
	var wakes []line.KeyWake
	for _, key := range r.keys {
		woken, done := r.woken[key]
		switch {
		case done:
			r.observeWoken(ctx, key, woken.Tasks)
		case slices.Contains(r.passed, key):
			r.leaveWaiters(ctx, key)
		case lease.ShouldNotify() && !lease.HandedOff(): // otherwise the next holder does it
			wakes = append(wakes, line.KeyWake{Key: key, WakeOptions: line.WakeOptions{Leaver: r.id}})
		}
	}
	r.wakeAll(ctx, wakes)
}

// leaveWaiters removes the task from the waiters of a key that is another owner's to release.
func (r *run) leaveWaiters(ctx context.Context, key string) {
	_, _ = retry(ctx, r, "an ended task is still among the waiters of its key; the next wake finds that it has ended",
		func(ctx context.Context) (none struct{}, err error) { return none, r.engine().Leave(ctx, key, r.id) })
}

// observeWoken reports tasks that were woken.
func (r *run) observeWoken(ctx context.Context, key string, tasks []line.Task) {
	for _, next := range tasks {
		r.observe(ctx, &Event{Kind: Woke, Key: key, Cause: ByRelease, Next: delayqueue.Task(next)})
	}
}

// wakeAll wakes the next task of each of several keys, and retries keys for which that fails.
func (r *run) wakeAll(ctx context.Context, wakes []line.KeyWake) {
	if len(wakes) == 0 || r.Queue == nil {
		return
	}
	_, _ = retry(ctx, r, notWoken, func(ctx context.Context) (none struct{}, failed error) {
		left := wakes[:0]
		for i, woken := range r.engine().WakeAll(ctx, wakes) {
			if woken.Err != nil {
				left, failed = append(left, wakes[i]), woken.Err
				continue
			}
			r.observeWoken(ctx, wakes[i].Key, woken.Tasks)
		}
		wakes = left
		return none, failed
	})
}

// notWoken is what the log says about a wake that failed.
const notWoken = "the next task was not woken; the wake is made again once Redis answers"

// noteHold adds the time since the run's handler began to that average. If two runs do this at the same moment, one of the
// samples is lost, which does no harm.
func (r *run) noteHold() {
	if r.began.IsZero() {
		return
	}
	mean, d := r.meanHold(), time.Since(r.began)
	if mean > 0 {
		d = mean + (d-mean)/8
	}
	r.held.Store(int64(d))
}
