package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/taskrun"

	"github.com/railtoken/railtoken/locking"
)

// errItemsInOrder is the error of a task of items whose handler keeps an order.
var errItemsInOrder = errors.New("a task of items cannot run in order: give its handler a strategy in BestEffort order")

// useItems prepares the run of a task of items. It returns the first fault of their keys, or nil.
func (r *run) useItems(items *taskrun.ItemsError) (err error) {
	if r.order != BestEffort {
		return errItemsInOrder
	}
	r.withoutLock = !items.Locked
	if items.Locked {
		if r.keys, err = r.limits.Check(items.Keys); err != nil {
			return err
		}
	}
	for i, keys := range items.Of {
		if items.Of[i], err = r.limits.Check(keys); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	items.Run = &itemsRun{run: r}
	return nil
}

// itemsRun is the run of a task of items, as package items sees it.
type itemsRun struct {
	*run
	waitReported atomic.Bool // an event has said how long the task waited
}

// Acquire makes one attempt to lock the keys of an item.
func (r *itemsRun) Acquire(ctx context.Context, keys []string) (taskrun.Item, *locking.HeldError, error) {
	item := &run{
		lock: r.lock, task: r.task, id: r.id, active: r.active, keys: keys, attempt: r.attempt, left: r.left,
		firstAt: r.firstAt, superseding: r.superseding, since: r.since,
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout(ctx))
	defer cancel()
	opts := item.options()
	opts.Notify = taskrun.NotifyFor // whatever the strategy: the task may be parked on this key
	began := r.clock()
	lease, err := r.Locker.Acquire(ctx, keys, opts)
	took := since(began)
	if held, ok := errors.AsType[*locking.HeldError](err); ok {
		return nil, held, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var waited time.Duration
	if !r.waitReported.Swap(true) {
		waited = item.waited()
	}
	item.observe(ctx, &Event{Kind: Acquired, Waited: waited, Took: took, Backend: r.backend})
	item.began = time.Now()
	item.list(lease, true)
	r.active.Took(keys, true)
	return lockedItem{item, lease}, nil, nil
}

// AwaitRedis waits for a moment after an error of Acquire that may pass.
func (r *itemsRun) AwaitRedis(ctx context.Context, err error) error {
	if err == nil {
		r.outage = outage{}
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !mayPass(err) {
		return err
	}
	return r.awaitRedis(ctx, &r.outage, err)
}

// Park has the task wait for keys. The Requeue of the handler's strategy has the limits and the delay. The first key is
// the one that limits and events are about.
func (r *itemsRun) Park(ctx context.Context, all []*locking.HeldError, refused time.Time) error {
	held := all[0]
	r.refusals++
	if r.firstAt.IsZero() {
		r.firstAt = refused
	}
	if r.active.Met(r.attempt).Count == 0 {
		r.reported().Conflict(held.Key)
		r.observe(ctx, &Event{Kind: Refused, Key: held.Key, Holder: known(held.Holder), Waited: r.waited()})
	}
	requeue, _ := RequeueOf(r.Strategy)
	d := requeue.Decide(Conflict{
		Type: r.task.Type(), Key: held.Key, Holder: held.Holder, Attempt: 1, FirstAt: r.firstAt, Now: time.Now(),
	})
	for _, other := range all[1:min(len(all), line.MostAwaited)] {
		r.also = append(r.also, other.Key)
		if requeue.Delay == 0 { // whichever holder has died, its key is free when the task tries again
			d.Delay = min(d.Delay, defaultDelay(other.Holder))
		}
	}
	return r.ended(ctx, r.park(ctx, d, held))
}

// Pause has the task run again after a delay.
func (r *itemsRun) Pause(delay time.Duration, cause error) error {
	if r.active != nil {
		r.active.Postpone(delay)
	}
	return &taskrun.PausedError{Err: cause, Delay: delay}
}

// ForwardWake forwards a wake that the task has not used. A task that has never waited was not woken.
func (r *itemsRun) ForwardWake(ctx context.Context) {
	if r.active.Met(r.attempt).Count > 0 {
		r.leave(ctx)
	}
}

// Stopping is nil for a task that can wait only in its slot: asynq puts the task back when the time for the shutdown is
// over.
func (r *itemsRun) Stopping() <-chan struct{} {
	if r.nowhere() {
		return nil
	}
	return r.lock.Stopping
}

func (r *itemsRun) Attempt() int { return r.attempt }

func (r *itemsRun) IsLast() bool { return r.lastAttempt() }

func (r *itemsRun) Logger() *slog.Logger { return r.lock.Logger }

// lockedItem is an item whose keys are locked: a run of its own, from the lock to the release.
type lockedItem struct {
	*run
	lease *locking.Lease
}

func (i lockedItem) Lease() *locking.Lease { return i.lease }

// Release releases the keys and wakes the next task of each. Other items of the task go on.
func (i lockedItem) Release(ctx context.Context, succeeded bool) error {
	i.superseding.itemReturned(i.lease)
	if succeeded {
		locks.Forgive(ctx, i.Stopping, i.lease)
	}
	if lost := i.giveBackNow(ctx, i.lease, false); errors.Is(lost, locking.ErrLost) {
		return lost
	}
	return nil
}
