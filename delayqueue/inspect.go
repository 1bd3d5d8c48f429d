package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// AwaitedKey is a key that tasks wait for.
type AwaitedKey struct {
	Key string
	// Waiters is how many tasks wait for it, with those that are gone and that a wake will skip.
	Waiters int
}

// Count returns how many tasks are parked, on whichever key. Tasks that went away without a word, such as deleted ones, may still be counted
// for a while; those that wait in their worker slots are not. It makes one call to Redis.
func (q *Queue) Count(ctx context.Context) (int, error) {
	n, err := q.client.ZCard(ctx, q.index).Result()
	if err != nil {
		return 0, fmt.Errorf("delayqueue: count parked tasks: %w", err)
	}
	return int(n), nil
}

// Longest returns the n tasks that have waited longest since their first conflict, over all keys, the longest first; none that is not in
// line at this moment.
//
// It reads the records of all waiting tasks, 500 in a call to Redis, which takes about a millisecond. When more than 10 000 wait, it looks
// at those 10 000 that have not tried their keys for the longest time.
func (q *Queue) Longest(ctx context.Context, n int) ([]Waiter, error) {
	if n <= 0 {
		return nil, nil
	}
	waiters, err := q.lookAtAll(ctx)
	if err != nil {
		return nil, err
	}
	if err := q.readPositions(ctx, waiters); err != nil {
		return nil, err
	}
	waiters = slices.DeleteFunc(waiters, func(w Waiter) bool { return !w.waits() })
	slices.SortStableFunc(waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	waiters = waiters[:min(n, len(waiters))]
	return waiters, q.readTimers(ctx, waiters)
}

// Keys returns the n keys that most tasks wait for, the one with the longest line first, and of equal ones by name.
//
// It costs and is bounded as [Queue.Longest]: a key may be missing when more than 10 000 tasks wait.
func (q *Queue) Keys(ctx context.Context, n int) ([]AwaitedKey, error) {
	if n <= 0 {
		return nil, nil
	}
	waiters, err := q.lookAtAll(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiters, func(a, b Waiter) int { return cmp.Compare(a.registry, b.registry) })
	waiters = slices.CompactFunc(waiters, func(a, b Waiter) bool { return a.registry == b.registry })
	var found []AwaitedKey
	err = ask(ctx, q, "the waiters of keys", waiters, func(p redis.Pipeliner, w *Waiter) *redis.IntCmd {
		return p.ZCard(ctx, w.registry)
	}, func(w *Waiter, waiting *redis.IntCmd) {
		if waiting.Val() > 0 {
			found = append(found, AwaitedKey{Key: w.Key, Waiters: int(waiting.Val())})
		}
	})
	slices.SortFunc(found, func(a, b AwaitedKey) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(a.Key, b.Key))
	})
	return found[:min(n, len(found))], err
}

// Find returns what a task waits for, and where it stands. The error matches [ErrNotWaiting] when it is not parked: it never
// was, was woken, waits in its worker slot, or is gone. It makes three calls to Redis.
func (q *Queue) Find(ctx context.Context, t Task) (Waiter, error) {
	one := []Waiter{{Task: t}}
	if err := q.readRecords(ctx, one); err != nil {
		return Waiter{}, err
	}
	if err := q.readPositions(ctx, one); err != nil {
		return Waiter{}, err
	}
	if !one[0].waits() {
		return Waiter{}, &NotWaitingError{Task: t, State: one[0].State}
	}
	return one[0], q.readTimers(ctx, one)
}

// waits reports whether a task of which all is read stands in line and will run.
func (w *Waiter) waits() bool { return w.Position > 0 && !w.State.over() }

// over reports whether a task in this state will not run by itself.
func (s State) over() bool { return s == StateGone || s == StateArchived || s == "completed" }

// lookAtAll returns the tasks of the index that may wait, without their positions and timers.
func (q *Queue) lookAtAll(ctx context.Context) ([]Waiter, error) {
	members, err := q.client.ZRange(ctx, q.index, 0, mostLooked-1).Result()
	if err != nil {
		return nil, fmt.Errorf("delayqueue: list parked tasks: %w", err)
	}
	waiters := make([]Waiter, 0, len(members))
	for _, member := range members {
		if t, err := parseMember(member); err == nil {
			waiters = append(waiters, Waiter{Task: t})
		}
	}
	if err := q.readRecords(ctx, waiters); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(waiters, func(w Waiter) bool { return w.registry == "" }), nil
}
