package delayqueue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/reorder.lua
	reorderSource string
	//go:embed lua/place.lua
	placeSource string
	//go:embed lua/drop.lua
	dropSource string

	reorderScript = redis.NewScript(reorderSource)
	placeScript   = redis.NewScript(placeSource)
	dropScript    = redis.NewScript(dropSource)
)

// ErrNotWaiting reports that a task does not stand in the line that it was looked for in. Nothing was changed. The error that matches it
// is a [NotWaitingError].
var ErrNotWaiting = errors.New("delayqueue: the task does not wait")

// NotWaitingError says where a task is that does not wait. It matches [ErrNotWaiting].
type NotWaitingError struct {
	Task Task
	// Key is the key that it was thought to wait for; empty for any.
	Key string
	// State is where it is instead: for example StatePending when it was woken, StateActive when it runs, StateGone when there is no such task.
	State State
}

// Error names the task, the key and the state.
func (e *NotWaitingError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("delayqueue: task %s does not wait: it is %s", e.Task, e.State)
	}
	return fmt.Sprintf("delayqueue: task %s does not wait for key %q: it is %s", e.Task, e.Key, e.State)
}

// Is reports whether target is [ErrNotWaiting].
func (e *NotWaitingError) Is(target error) bool { return target == ErrNotWaiting }

// PutFirst makes a task the next that is woken for key, before all that wait for it at this moment. It keeps the place when it is woken and
// refused again. The error matches [ErrNotWaiting] when the task does not wait for key.
//
// Its age and its conflicts stay what they are. After another error it may have its new place for this once only: PutFirst may be called
// again. It does nothing for tasks that run by their [Queue.Join]: their order is that in which they came.
func (q *Queue) PutFirst(ctx context.Context, key string, t Task) error {
	return q.reorder(ctx, key, t, "first")
}

// PutLast makes a task the last of those that wait for key at this moment; who joins later is behind it. It is like [Queue.PutFirst]
// in all else.
func (q *Queue) PutLast(ctx context.Context, key string, t Task) error {
	return q.reorder(ctx, key, t, "last")
}

// reorder changes the line first and the task's record after it. Between the two it has its place, but would lose it at its next conflict;
// the other way round, an error would leave a task where it is, to jump the line at some later time.
func (q *Queue) reorder(ctx context.Context, key string, t Task, where string) error {
	one := []Waiter{{Task: t}}
	if err := q.readRecords(ctx, one); err != nil {
		return err
	}
	if one[0].State.over() {
		return &NotWaitingError{Task: t, Key: key, State: one[0].State}
	}
	place, err := reorderScript.Run(ctx, q.client, []string{registry(key)}, t.member(), where).Text()
	if errors.Is(err, redis.Nil) {
		return &NotWaitingError{Task: t, Key: key, State: one[0].State}
	}
	if err == nil {
		err = placeScript.Run(ctx, q.client, []string{t.hash()}, registry(key), place).Err()
	}
	if err != nil {
		return fmt.Errorf("delayqueue: move task %s in its line: %w", t, err)
	}
	return nil
}

// Drop takes a parked task out of its line and deletes it, with its uniqueness lock. Those behind it move up.
//
// The error matches [ErrNotWaiting], and the task stays, when it is not parked: it was woken, and the wake is not to be swallowed; its timer
// has just brought it back; it runs; or it waits for nothing. One that waits will be parked again in a moment if it is refused.
func (q *Queue) Drop(ctx context.Context, t Task) error {
	w, err := q.Find(ctx, t)
	if err != nil {
		return err
	}
	// The task goes first, and only as long as nobody has woken it. Its entry that is left is one of a waiter that is gone: a wake
	// skips it and goes on to the next. In the other order a crash, or a task that is about to park, would leave a task with no line.
	keys := []string{t.hash(), t.prefix() + "retry", t.prefix() + "scheduled"}
	unique, err := q.client.HGet(ctx, t.hash(), "unique_key").Result()
	if unique != "" {
		keys = append(keys, unique)
	}
	state := ""
	if err == nil || errors.Is(err, redis.Nil) {
		state, err = q.runSettled(ctx, dropScript, keys, t.ID, w.registry)
	}
	if err != nil {
		return fmt.Errorf("delayqueue: drop task %s: %w", t, err)
	}
	if state != "dropped" {
		return &NotWaitingError{Task: t, Key: w.Key, State: State(state)}
	}
	for _, set := range []string{w.registry, q.index} {
		if err := q.client.ZRem(ctx, set, t.member()).Err(); err != nil {
			q.log.WarnContext(ctx, "the entry of a dropped task is left in a line; wakes will skip it", "error", err)
		}
	}
	return nil
}
