package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits limits the waiting of a task. The zero value sets no limit: a task waits until it gets its key.
type Limits struct {
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
func (b Limits) Validate() error {
	var errs []error
	for _, limit := range []struct {
		name  string
		value int
	}{{"Conflicts", b.Conflicts}, {"Waiters", b.Waiters}, {"Total", b.Total}} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("delayqueue: %s is %d: it cannot be negative", limit.name, limit.value))
		}
	}
	if b.Age < 0 {
		errs = append(errs, fmt.Errorf("delayqueue: Age is %v: it cannot be negative", b.Age))
	}
	return errors.Join(errs...)
}

// Limit names a bound that a task has reached.
type Limit string

// The bounds.
const (
	NoLimit        Limit = ""
	ConflictsLimit Limit = "conflicts"
	AgeLimit       Limit = "age"
	WaitersLimit   Limit = "waiters"
	TotalLimit     Limit = "total"
)

// Reached returns the bound on Conflicts or Age that a task has reached which has met c, its present conflict included; NoLimit when it has reached neither.
func (b Limits) Reached(c Conflict) Limit {
	switch {
	case b.Conflicts > 0 && c.Count > b.Conflicts:
		return ConflictsLimit
	case b.Age > 0 && !c.First.IsZero() && time.Since(c.First) > b.Age:
		return AgeLimit
	}
	return NoLimit
}

// Full returns the bound on Waiters or Total that a task would reach which waited for key now; NoLimit when there is room, and for one that has its place.
// Others may join meanwhile: both hold when a task parks.
//
// It makes one call to Redis, some more when there is no room, and none when b sets neither bound.
func (q *Queue) Full(ctx context.Context, t Task, key string, b Limits) (Limit, error) {
	if b.Waiters == 0 && b.Total == 0 {
		return NoLimit, nil
	}
	bound, err := q.full(ctx, t, key, b)
	if err == nil && bound != NoLimit {
		// Of those that seem to wait some may be gone: deleted or archived by hand. A few are looked at.
		if err = q.pruneSome(ctx, registry(key), bound); err == nil {
			bound, err = q.full(ctx, t, key, b)
		}
	}
	if err != nil {
		return NoLimit, fmt.Errorf("delayqueue: the bounds of task %s: %w", t, err)
	}
	return bound, nil
}

func (q *Queue) full(ctx context.Context, t Task, key string, b Limits) (Limit, error) {
	var waiters, total *redis.IntCmd
	var waits, counts *redis.FloatCmd
	_, err := q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		waiters, total = pipe.ZCard(ctx, registry(key)), pipe.ZCard(ctx, q.index)
		waits, counts = pipe.ZScore(ctx, registry(key), t.member()), pipe.ZScore(ctx, q.index, t.member())
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil: it has no place yet
		return NoLimit, err
	}
	hasPlace, counted := waits.Err() == nil, counts.Err() == nil // a task that its timer has brought back
	switch {
	case b.Waiters > 0 && int(waiters.Val()) >= b.Waiters && !hasPlace:
		return WaitersLimit, nil
	case b.Total > 0 && int(total.Val()) >= b.Total && !counted:
		return TotalLimit, nil
	}
	return NoLimit, nil
}

// pruneSome looks at a few of those that fill a line or the index, and takes out those that are gone.
func (q *Queue) pruneSome(ctx context.Context, line string, full Limit) error {
	few := q.client.ZRange(ctx, q.index, 0, fewPruned-1)
	if full == WaitersLimit {
		few = q.client.ZRandMember(ctx, line, fewPruned)
	}
	entries, err := few.Result()
	if err != nil {
		return err
	}
	return q.prune(ctx, line, entries)
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
