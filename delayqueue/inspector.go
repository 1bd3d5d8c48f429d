package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/line"
)

// mostLooked limits what one call reads, because Redis does nothing else meanwhile.
const mostLooked = 10_000

// Inspector lists waiting tasks and reorders them. It is safe for concurrent use, and needs no Close.
type Inspector struct{ engine *line.Engine }

// Count returns how many tasks are parked on any key. Tasks that were deleted by hand may count for a while; tasks that
// wait in their worker slots do not. It makes one call to Redis, with lanes one more for each.
func (i *Inspector) Count(ctx context.Context) (int, error) {
	n, err := line.Awaited{Engine: i.engine}.Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("delayqueue: %w", err)
	}
	return n, nil
}

// Waiters returns the first n tasks that are parked on key, in the order in which [Queue.Wake] wakes them. If n is
// larger than 10 000, it counts as 10 000. Some may be gone: a wake skips those. Tasks that wait in their worker slots
// are not among them. Tasks that run in order may run in another order: see [Inspector.Sequence].
//
// It makes one call to Redis, and two more for each 500 tasks. The result is not a snapshot: tasks come and go
// meanwhile.
func (i *Inspector) Waiters(ctx context.Context, key string, n int) ([]Waiter, error) {
	return i.members(ctx, i.engine.Names().Waiters(key), key, n)
}

// Sequence returns the first n tasks in the sequence of a key whose tasks run in order, at most 10 000. Only the first
// of them may run. Position counts from 1, and Since is when a task joined. Some tasks may be gone; the tasks behind
// them skip them. It costs as much as [Inspector.Waiters].
func (i *Inspector) Sequence(ctx context.Context, key string, n int) ([]Waiter, error) {
	waiters, err := i.members(ctx, i.engine.Names().Sequence(key), key, n)
	for n := range waiters {
		waiters[n].Since = waiters[n].joined
	}
	return waiters, err
}

// members returns the first n tasks of a sorted set.
func (i *Inspector) members(ctx context.Context, set, key string, n int) ([]Waiter, error) {
	if n <= 0 {
		return nil, nil
	}
	entries, err := i.client().ZRangeWithScores(ctx, set, 0, int64(min(n, mostLooked))-1).Result()
	if err != nil {
		return nil, fmt.Errorf("delayqueue: list waiters: %w", err)
	}
	waiters := make([]Waiter, 0, len(entries))
	for n, e := range entries {
		member, _ := e.Member.(string)
		if t, err := line.ParseEntry(member); err == nil { // other members are not ours
			at := line.JoinedAt(e.Score)
			waiters = append(waiters, Waiter{Task: Task(t), Position: n + 1, Since: at, joined: at})
		}
	}
	if err := i.readRecords(ctx, waiters); err != nil {
		return nil, err
	}
	for n := range waiters {
		waiters[n].Key = key
	}
	return waiters, i.readTimers(ctx, waiters)
}

// Longest returns the n tasks that have waited longest since their first conflict, over all keys, the longest first.
//
// It reads the records of all waiting tasks, 500 per call to Redis, which takes about a millisecond. When more than
// 10 000 wait, it reads the 10 000 that have not tried their keys for the longest time.
func (i *Inspector) Longest(ctx context.Context, n int) ([]Waiter, error) {
	if n <= 0 {
		return nil, nil
	}
	waiters, err := i.all(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.readPositions(ctx, waiters); err != nil {
		return nil, err
	}
	waiters = slices.DeleteFunc(waiters, func(w Waiter) bool { return !w.waits() })
	slices.SortStableFunc(waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	waiters = waiters[:min(n, len(waiters))]
	return waiters, i.readTimers(ctx, waiters)
}

// AwaitedKey is a key that tasks wait for.
type AwaitedKey struct {
	Key string
	// Waiters is how many tasks wait for it, including those that are gone and that a wake will skip.
	Waiters int
}

// Keys returns the n keys with the most waiters, in descending order, and by name where the numbers are equal.
//
// It costs as much as [Inspector.Longest], and a key may be missing when more than 10 000 tasks wait.
func (i *Inspector) Keys(ctx context.Context, n int) ([]AwaitedKey, error) {
	if n <= 0 {
		return nil, nil
	}
	waiters, err := i.all(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range waiters {
		for _, key := range w.Also {
			waiters = append(waiters, Waiter{Key: key, set: i.engine.Names().Waiters(key)})
		}
	}
	slices.SortFunc(waiters, func(a, b Waiter) int { return cmp.Compare(a.set, b.set) })
	waiters = slices.CompactFunc(waiters, func(a, b Waiter) bool { return a.set == b.set })
	var found []AwaitedKey
	err = ask(ctx, i.client(), "the waiters of keys", waiters, func(p redis.Pipeliner, w *Waiter) *redis.IntCmd {
		return p.ZCard(ctx, w.set)
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

// Find returns what a task waits for and where it stands. A task that keeps its position in the sequence of a key while it is
// retried later or scheduled is found, too: its Position is 0, and Since is when it joined. The error matches
// [ErrNotWaiting] when the task is in neither: it never was, was woken, waits in its worker slot, or is gone. It makes three
// calls to Redis.
func (i *Inspector) Find(ctx context.Context, t Task) (Waiter, error) {
	one := []Waiter{{Task: t}}
	if err := i.readRecords(ctx, one); err != nil {
		return Waiter{}, err
	}
	if err := i.readPositions(ctx, one); err != nil {
		return Waiter{}, err
	}
	if !one[0].waits() {
		if err := i.readPlace(ctx, &one[0]); err != nil {
			return Waiter{}, err
		}
	}
	if one[0].Key == "" || one[0].State.over() {
		return Waiter{}, &NotWaitingError{Task: t, State: one[0].State}
	}
	return one[0], i.readTimers(ctx, one)
}

// readPlace makes the key of a task that is not parked that of the sequence in which it keeps its position; empty if it is in
// none, or will come by itself.
func (i *Inspector) readPlace(ctx context.Context, w *Waiter) error {
	w.Key = ""
	if w.sequence == "" || w.State != StateRetry && w.State != "scheduled" {
		return nil
	}
	at, err := i.client().ZScore(ctx, i.engine.Names().Sequence(w.sequence), line.Task(w.Task).Entry()).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delayqueue: the place of task %s in its sequence: %w", w.Task, err)
	}
	w.Key, w.Since = w.sequence, time.UnixMicro(int64(at))
	return nil
}

// PutFirst makes a task the next one that is woken for key. It keeps that position when it is woken and refused again.
// The error matches [ErrNotWaiting] when the task does not wait for key.
//
// Its age and its conflicts do not change. After any other error it may have its new position until its next conflict;
// call PutFirst again then. It does not change the order of tasks that run in order.
func (i *Inspector) PutFirst(ctx context.Context, key string, t Task) error {
	return i.reorder(ctx, key, t, true)
}

// PutLast puts a task behind all others that wait for key now. Tasks that arrive later come after it. Otherwise it is
// like [Inspector.PutFirst].
func (i *Inspector) PutLast(ctx context.Context, key string, t Task) error {
	return i.reorder(ctx, key, t, false)
}

func (i *Inspector) reorder(ctx context.Context, key string, t Task, first bool) error {
	one := []Waiter{{Task: t}}
	if err := i.readRecords(ctx, one); err != nil {
		return err
	}
	if !one[0].State.over() {
		waits, err := i.engine.Reorder(ctx, key, line.Task(t), first)
		if err != nil {
			return fmt.Errorf("delayqueue: reorder task %s: %w", t, err)
		}
		if waits {
			return nil
		}
	}
	e := &NotWaitingError{Task: t, Key: key, State: one[0].State}
	if one[0].Key != key && e.State == StateRetry {
		e.Other = one[0].Key
	}
	return e
}

// Drop deletes a task that [Inspector.Find] finds, with its uniqueness lock. The tasks behind it move up. If tasks of its key
// run in order, the head of the sequence is woken: so the head of a sequence that has failed, and that keeps its position
// under StrictFIFO, can be removed, and the next one runs.
//
// If the task does not wait, the error matches [ErrNotWaiting], and the task stays: it was woken, its timer has just
// ended, it is running, or it waits for nothing. A running task that is refused its key is parked again: call Drop
// again then.
func (i *Inspector) Drop(ctx context.Context, t Task) error {
	w, err := i.Find(ctx, t)
	if err != nil {
		return err
	}
	state, err := i.engine.Drop(ctx, w.Key, line.Task(t))
	if err != nil {
		return fmt.Errorf("delayqueue: drop task %s: %w", t, err)
	}
	if state != line.Ended {
		return &NotWaitingError{Task: t, Key: w.Key, State: State(state)}
	}
	return nil
}

func (i *Inspector) client() redis.UniversalClient { return i.engine.Client() }

// all returns the tasks of the index that may wait, without their positions and timers.
func (i *Inspector) all(ctx context.Context) ([]Waiter, error) {
	parked, err := i.engine.Oldest(ctx, mostLooked)
	if err != nil {
		return nil, fmt.Errorf("delayqueue: list parked tasks: %w", err)
	}
	waiters := make([]Waiter, 0, len(parked))
	for _, z := range parked {
		entry, _ := z.Member.(string)
		if t, err := line.ParseEntry(entry); err == nil {
			waiters = append(waiters, Waiter{Task: Task(t)})
		}
	}
	if err := i.readRecords(ctx, waiters); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(waiters, func(w Waiter) bool { return w.set == "" }), nil
}

// ask sends a command for each of the waiters for which send returns one, [lookBatch] at a time, and passes each reply
// to note, unless the key is gone.
func ask[C interface {
	comparable
	redis.Cmder
}](
	ctx context.Context, client redis.UniversalClient, about string, waiters []Waiter,
	send func(redis.Pipeliner, *Waiter) C, note func(*Waiter, C),
) error {
	var none C
	for batch := range slices.Chunk(waiters, lookBatch) {
		cmds := make([]C, len(batch))
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n := range batch {
				cmds[n] = send(p, &batch[n])
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("delayqueue: look at %s: %w", about, err)
		}
		for n, cmd := range cmds {
			if cmd != none && cmd.Err() == nil {
				note(&batch[n], cmd)
			}
		}
	}
	return nil
}
