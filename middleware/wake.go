package middleware

import (
	"context"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/parking"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

// wakeWaiters wakes the next tasks of each released key that may have waiters: as many as can run or be on standby, all
// in one round trip.
func (r *run) wakeWaiters(ctx context.Context, lease *locking.Lease) {
	held := r.noteHold()
	var wakes []parking.KeyWake
	for _, key := range r.keys {
		n := r.SlotBudget.standby.Released(key,
			standby.Release{Held: held, HandedOff: lease.HandedOff(), Notify: lease.ShouldNotify()},
			r.SlotBudget.spareForNext)
		if n > 0 {
			wakes = append(wakes, parking.KeyWake{Key: key, WakeOptions: parking.WakeOptions{Leaver: r.id, Most: n}})
		}
	}
	if len(wakes) > 0 {
		r.wakeAll(ctx, wakes, lease.HandedOff())
	}
}

// wake wakes the next tasks of a key, as many as the options say and at least one.
func (r *run) wake(ctx context.Context, key string, opts parking.WakeOptions) {
	r.wakeAll(ctx, []parking.KeyWake{{Key: key, WakeOptions: opts}}, false)
}

// wakeAll wakes the next tasks of several keys, and retries keys for which that fails. A key is free for the first of
// its tasks unless it was handed off in this process or a task waits for it in its slot.
func (r *run) wakeAll(ctx context.Context, wakes []parking.KeyWake, handedOff bool) {
	_, _ = retry(ctx, r, notWoken, func(ctx context.Context) (none struct{}, failed error) {
		left := wakes[:0]
		for i, woken := range r.engine().WakeAll(ctx, wakes) {
			w := wakes[i]
			if woken.Err != nil {
				left, failed = append(left, w), woken.Err
				continue
			}
			awaited := r.SlotBudget.standby.Woke(w.Key, w.Most, woken.Tasks, woken.Left)
			for i, next := range woken.Tasks {
				cause := ByRelease
				if i > 0 || handedOff || awaited {
					cause = ByStandby
				}
				r.observe(ctx, &Event{Kind: Woke, Key: w.Key, Cause: cause, Next: delayqueue.Task(next)})
			}
		}
		wakes = left
		return none, failed
	})
	for _, w := range wakes {
		r.SlotBudget.standby.NotWoken(w.Key, w.Most)
	}
}

// notWoken is what the log says about a wake that failed.
const notWoken = "the next task was not woken; its timer will bring it back"

// meanHold returns how long handlers of this middleware take on average; zero while unknown.
func (l *lock) meanHold() time.Duration { return time.Duration(l.held.Load()) }

// noteHold adds the time since the run's handler began to that average, and returns it; zero if no handler ran. If two
// runs do this at the same moment, one of the samples is lost, which does no harm.
func (r *run) noteHold() time.Duration {
	if r.began.IsZero() {
		return 0
	}
	d := time.Since(r.began)
	r.held.Store(int64(standby.Average(r.meanHold(), d)))
	return d
}
