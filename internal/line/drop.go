package line

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

var (
	//go:embed lua/drop.lua
	dropSource string

	dropScript = redis.NewScript(composed(dropSource))
)

// Dropped is what [Engine.Drop] returns for a task that it has deleted.
const Dropped = "dropped"

// Drop deletes a task that is parked on key, or that keeps its position in the sequence of key while it is retried later or
// scheduled, with its uniqueness lock. It removes the task from all waiters and the sequence, and wakes the head of the
// sequence that is left: nobody else does, when no task holds the key. It returns [Dropped], or the state of a task that does
// not wait so; that task stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	// The task is deleted first, and only if it has not been woken. The entry that is left is that of a task that is
	// gone, which a wake skips. In the other order a crash, or a task that is about to park, would leave a task that no
	// wake finds.
	keys := []string{t.Hash(), asynqwire.Retry(t.Queue), asynqwire.Scheduled(t.Queue)}
	fields, err := e.client.HMGet(ctx, t.Hash(), asynqwire.UniqueField, WaitField).Result()
	if err != nil {
		return "", err
	}
	unique, _ := fields[0].(string)
	if unique != "" {
		keys = append(keys, unique)
	}
	state, err := e.runSettled(ctx, dropScript, keys, t.ID, WaitersKey(key), SequenceKey(key))
	if err != nil || state != Dropped {
		return state, err
	}
	sets := []string{WaitersKey(key), e.index}
	for _, further := range ParseWait(fields[1]).Keys {
		sets = append(sets, WaitersKey(further))
	}
	for _, set := range sets {
		if err := e.client.ZRem(ctx, set, t.Entry()).Err(); err != nil {
			e.log.WarnContext(ctx, "the entry of a dropped task is left among the waiters; wakes skip it", "error", err)
		}
	}
	left, err := e.Remove(ctx, t, key)
	if err == nil && len(left.Next) > 0 {
		_, err = e.WakeTask(ctx, key, left.Next[0])
	}
	if err != nil {
		e.log.WarnContext(ctx, "the task behind a dropped one was not woken; its timer will bring it back", "error", err)
	}
	return state, nil
}
