package middleware

import (
	"context"
	"slices"
	"time"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware/internal/standby"
)

// wakeTimeout is the maximum duration of the wakes after a release.
const wakeTimeout = 5 * time.Second

// planWake decides, before a key is released, how many tasks the release wakes if tasks are parked on it. It is called
// for all keys of the lease, in turn.
func (r *run) planWake(key string) (most int) {
	if r.plan.keys == nil {
		r.plan.held, r.plan.keys = r.noteHold(), r.plan.first[:0]
	}
	most, known := r.SlotBudget.standby.Plan(key, r.plan.held, r.SlotBudget.spareForNext)
	r.plan.keys = append(r.plan.keys, plannedWake{key, most, known})
	return most
}

// wakeWaiters wakes the next tasks of each released key that may have waiters: as many as can run or be on standby, all
// in one round trip. After an acknowledgement that woke tasks, it wakes the rest.
func (r *run) wakeWaiters(ctx context.Context, lease *locking.Lease) {
	var wakes []line.KeyWake
	wake := func(key string, held time.Duration) {
		if slices.Contains(r.passed, key) {
			r.leaveWaiters(ctx, key)
			return
		}
		released := standby.Release{Held: held, HandedOff: lease.HandedOff(), Notify: lease.ShouldNotify(), Looked: r.plan.done}
		if n := r.SlotBudget.standby.Released(key, released, r.SlotBudget.spareForNext); n > 0 {
			wakes = append(wakes, line.KeyWake{Key: key, WakeOptions: line.WakeOptions{Leaver: r.id, Most: n}})
		}
	}
	if len(r.plan.keys) == 0 {
		held := r.noteHold()
		for _, key := range r.keys {
			wake(key, held)
		}
	}
	for _, p := range r.plan.keys {
		if held, woken := r.settle(ctx, p); !woken {
			wake(p.key, held)
		}
	}
	if len(wakes) > 0 {
		r.wakeAll(ctx, wakes, lease.HandedOff())
	}
}

// leaveWaiters removes the task from the waiters of a key that is another owner's to release.
func (r *run) leaveWaiters(ctx context.Context, key string) {
	_, _ = retry(ctx, r, "an ended task is still among the waiters of its key; the next wake finds that it has ended",
		func(ctx context.Context) (none struct{}, err error) { return none, r.engine().Leave(ctx, key, r.id) })
}

// settle notes what the acknowledgement has woken for a key. If it has woken no task, settle returns how long the key was
// held, unless that has been noted.
func (r *run) settle(ctx context.Context, p plannedWake) (held time.Duration, woken bool) {
	w, woken := r.plan.woken[p.key]
	awaited := false
	switch {
	case woken && p.known:
		awaited = r.SlotBudget.standby.Woke(p.key, p.most, w.Tasks, w.Left)
	case woken:
		r.SlotBudget.standby.Learn(p.key, r.plan.held, w.Left)
	case p.known:
		r.SlotBudget.standby.NotWoken(p.key, p.most)
	default:
		held = r.plan.held
	}
	r.observeWoken(ctx, p.key, w.Tasks, awaited)
	return held, woken
}

// observeWoken reports tasks that were woken. The key is free for the first of them, unless a task has it or waits for it
// in its slot.
func (r *run) observeWoken(ctx context.Context, key string, tasks []line.Task, awaited bool) {
	for i, next := range tasks {
		cause := ByRelease
		if i > 0 || awaited {
			cause = ByStandby
		}
		r.observe(ctx, &Event{Kind: Woke, Key: key, Cause: cause, Next: delayqueue.Task(next)})
	}
}

// wake wakes the next tasks of a key, as many as the options say and at least one.
func (r *run) wake(ctx context.Context, key string, opts line.WakeOptions) {
	r.wakeAll(ctx, []line.KeyWake{{Key: key, WakeOptions: opts}}, false)
}

// wakeAll wakes the next tasks of several keys, and retries keys for which that fails. A key is free for the first of
// its tasks unless it was handed off in this process or a task waits for it in its slot.
func (r *run) wakeAll(ctx context.Context, wakes []line.KeyWake, handedOff bool) {
	_, _ = retry(ctx, r, notWoken, func(ctx context.Context) (none struct{}, failed error) {
		left := wakes[:0]
		for i, woken := range r.engine().WakeAll(ctx, wakes) {
			w := wakes[i]
			if woken.Err != nil {
				left, failed = append(left, w), woken.Err
				continue
			}
			awaited := r.SlotBudget.standby.Woke(w.Key, w.Most, woken.Tasks, woken.Left)
			r.observeWoken(ctx, w.Key, woken.Tasks, handedOff || awaited)
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
