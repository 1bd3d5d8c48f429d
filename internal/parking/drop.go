package parking

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/drop.lua
	dropSource string

	dropScript = redis.NewScript(dropSource)
)

// Dropped is what [Engine.Drop] returns for a task that it has deleted.
const Dropped = "dropped"

// Drop deletes a task that is parked on key, with its uniqueness lock, and removes it from the waiters. It returns
// [Dropped], or the state of a task that is not parked on key; that task stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	// The task is deleted first, and only if it has not been woken. The entry that is left is that of a task that is
	// gone, which a wake skips. In the other order a crash, or a task that is about to park, would leave a task that no
	// wake finds.
	keys := []string{t.Hash(), t.Prefix() + "retry"}
	unique, err := e.client.HGet(ctx, t.Hash(), "unique_key").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	if unique != "" {
		keys = append(keys, unique)
	}
	state, err := e.runSettled(ctx, dropScript, keys, t.ID, WaitersKey(key))
	if err != nil || state != Dropped {
		return state, err
	}
	for _, set := range []string{WaitersKey(key), e.index} {
		if err := e.client.ZRem(ctx, set, t.Entry()).Err(); err != nil {
			e.log.WarnContext(ctx, "the entry of a dropped task is left among the waiters; wakes skip it", "error", err)
		}
	}
	return state, nil
}
