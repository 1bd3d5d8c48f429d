package line

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// What [Engine.Full] returns.
const (
	WaitersFull = "waiters"
	TotalFull   = "total"
)

// mostParked returns how many tasks may be parked that are counted together, 0 for any number: with lanes, those of each lane
// have their part of a limit on all tasks.
func (e *Engine) mostParked(queue string, most int) int {
	if _, ok := e.names.In(queue); ok {
		return (most + e.names.Count() - 1) / e.names.Count()
	}
	return most
}

// fewPruned is how many waiters are checked when a limit is reached.
const fewPruned = 3

// Full returns [WaitersFull] or [TotalFull] when one of the limits leaves no room for the task among the waiters of
// key, and "" when there is room or the task has its position already. Others may join meanwhile: Park enforces both
// limits.
//
// It makes one call to Redis, a few more when there is no room, and none when both limits are zero.
func (e *Engine) Full(ctx context.Context, t Task, key string, maxWaiters, maxTotal int) (string, error) {
	if maxWaiters == 0 && maxTotal == 0 {
		return "", nil
	}
	maxTotal = e.mostParked(t.Queue, maxTotal)
	full, err := e.full(ctx, t, key, maxWaiters, maxTotal)
	if err == nil && full != "" {
		// Some waiters may have been deleted or archived by hand: a few are checked.
		if err = e.pruneSome(ctx, t, e.names.Waiters(key), full); err == nil {
			full, err = e.full(ctx, t, key, maxWaiters, maxTotal)
		}
	}
	if err != nil {
		return "", fmt.Errorf("delayqueue: the limits of task %s: %w", t, err)
	}
	return full, nil
}

func (e *Engine) full(ctx context.Context, t Task, key string, maxWaiters, maxTotal int) (string, error) {
	var waiters, total *redis.IntCmd
	var waits, counts *redis.FloatCmd
	_, err := e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		waiters, total = pipe.ZCard(ctx, e.names.Waiters(key)), pipe.ZCard(ctx, e.names.Index(t.Queue))
		waits, counts = pipe.ZScore(ctx, e.names.Waiters(key), t.Entry()), pipe.ZScore(ctx, e.names.Index(t.Queue), t.Entry())
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil: it does not wait yet
		return "", err
	}
	waitsAlready, counted := waits.Err() == nil, counts.Err() == nil // its timer has brought it back
	switch {
	case maxWaiters > 0 && int(waiters.Val()) >= maxWaiters && !waitsAlready:
		return WaitersFull, nil
	case maxTotal > 0 && int(total.Val()) >= maxTotal && !counted:
		return TotalFull, nil
	}
	return "", nil
}

// pruneSome checks a few of the waiters of a key or of the index, and removes those that are gone.
func (e *Engine) pruneSome(ctx context.Context, t Task, waiters, full string) error {
	var few *redis.StringSliceCmd
	if full == WaitersFull {
		few = e.client.ZRandMember(ctx, waiters, fewPruned)
	} else {
		few = e.client.ZRange(ctx, e.names.Index(t.Queue), 0, fewPruned-1)
	}
	entries, err := few.Result()
	if err != nil {
		return err
	}
	return e.prune(ctx, waiters, entries)
}

// Forget resets the conflicts of a task, as a run of its handler does.
func (e *Engine) Forget(ctx context.Context, t Task) error {
	if err := e.step(ctx, forgetStep, t.Hash()).Err(); err != nil {
		return fmt.Errorf("delayqueue: forget the conflicts of task %s: %w", t, err)
	}
	return nil
}
