package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds limits the waiting of a task. The zero value sets no limit: a task waits until it gets its key.
type Bounds struct {
	// Conflicts is how many times a task may be refused before its handler runs; no limit when zero.
	Conflicts int
	// Age is how long after its first conflict a task may wait again; no limit when zero.
	Age time.Duration
	// Waiters is how many tasks may wait for one key; no limit when zero. Tasks that were deleted or archived by hand may count for some
	// time: each task that finds the waiters full has a few of them looked at.
	Waiters int
	// Total is how many tasks may wait for all keys together, of all workers on this Redis; no limit when zero. Tasks that were deleted
	// or archived by hand count as they do for Waiters.
	Total int
}

// Validate returns every fault of the bounds at once, or nil.
func (b Bounds) Validate() error {
	var errs []error
	if b.Conflicts < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Conflicts is %d: it cannot be negative", b.Conflicts))
	}
	if b.Age < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Age is %v: it cannot be negative", b.Age))
	}
	if b.Waiters < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Waiters is %d: it cannot be negative", b.Waiters))
	}
	if b.Total < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Total is %d: it cannot be negative", b.Total))
	}
	return errors.Join(errs...)
}

// Bound names a bound that a task has reached.
type Bound string

// The bounds.
const (
	NoBound        Bound = ""
	ConflictsBound Bound = "conflicts"
	AgeBound       Bound = "age"
	WaitersBound   Bound = "waiters"
	TotalBound     Bound = "total"
)

// Bound returns what a task has met since its handler last ran, this conflict included, and the bound that it has reached, or NoBound. attempt is its
// retry count. Others may join meanwhile: the bounds on Waiters and Total hold when a task parks.
//
// It makes one call to Redis, some more when the waiters are full, and none when b sets no bound.
func (q *Queue) Bound(ctx context.Context, t Task, key string, attempt int, b Bounds) (Conflict, Bound, error) {
	if b == (Bounds{}) {
		return Conflict{}, NoBound, nil
	}
	c, bound, err := q.bound(ctx, t, key, attempt, b)
	if err == nil && (bound == WaitersBound || bound == TotalBound) {
		// Of those that seem to wait some may be gone: deleted or archived by hand. A few are looked at.
		if err = q.pruneSome(ctx, registry(key), bound); err == nil {
			c, bound, err = q.bound(ctx, t, key, attempt, b)
		}
	}
	if err != nil {
		return Conflict{}, NoBound, fmt.Errorf("delayqueue: the bounds of task %s: %w", t, err)
	}
	return c, bound, nil
}

func (q *Queue) bound(ctx context.Context, t Task, key string, attempt int, b Bounds) (Conflict, Bound, error) {
	var fields *redis.SliceCmd
	var waiters, total *redis.IntCmd
	var waits, counts *redis.FloatCmd
	_, err := q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		fields = pipe.HMGet(ctx, t.hash(), "railtoken:retried", "railtoken:conflicts", "railtoken:first")
		waiters, total = pipe.ZCard(ctx, registry(key)), pipe.ZCard(ctx, q.index)
		waits, counts = pipe.ZScore(ctx, registry(key), t.member()), pipe.ZScore(ctx, q.index, t.member())
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil: it has no place yet
		return Conflict{}, NoBound, err
	}
	now, found := time.Now(), fields.Val()
	hasPlace, counted := waits.Err() == nil, counts.Err() == nil // a task that its timer has brought back
	c := Conflict{Count: 1, First: now}
	if found[0] == strconv.Itoa(attempt) {
		var w Waiter
		w.readRecord([]any{"active", nil, found[1], found[2]})
		c.Count += w.Conflicts
		if !w.Since.IsZero() && w.Since.Before(now) {
			c.First = w.Since
		}
	}
	switch {
	case b.Conflicts > 0 && c.Count > b.Conflicts:
		return c, ConflictsBound, nil
	case b.Age > 0 && now.Sub(c.First) > b.Age:
		return c, AgeBound, nil
	case b.Waiters > 0 && int(waiters.Val()) >= b.Waiters && !hasPlace:
		return c, WaitersBound, nil
	case b.Total > 0 && int(total.Val()) >= b.Total && !counted:
		return c, TotalBound, nil
	}
	return c, NoBound, nil
}

// pruneSome looks at a few of those that fill a line or the index, and takes out those that are gone.
func (q *Queue) pruneSome(ctx context.Context, line string, full Bound) error {
	if full == WaitersBound {
		entries, err := q.client.ZRandMember(ctx, line, fewPruned).Result()
		if err != nil {
			return err
		}
		return q.prune(ctx, line, entries)
	}
	entries, err := q.client.ZRange(ctx, q.index, 0, fewPruned-1).Result()
	if err != nil {
		return err
	}
	ended, err := q.ended(ctx, entries)
	if err != nil || len(ended) == 0 {
		return err
	}
	scores, err := q.scores(ctx, ended)
	if err != nil {
		return err
	}
	return q.step(ctx, strikeStep, q.index, pairs(ended, scores)...).Err()
}

// fewPruned is how many tasks are looked at when the waiters are full.
const fewPruned = 3

// Forget has the conflicts of a task counted anew, as when its handler has run.
func (q *Queue) Forget(ctx context.Context, t Task) error {
	if err := q.step(ctx, forgetStep, t.hash()).Err(); err != nil {
		return fmt.Errorf("delayqueue: forget the conflicts of task %s: %w", t, err)
	}
	return nil
}
