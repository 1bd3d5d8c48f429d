package parking

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/reorder.lua
	reorderSource string
	//go:embed lua/place.lua
	placeSource string
	//go:embed lua/drop.lua
	dropSource string
	//go:embed lua/replay.lua
	replaySource string

	reorderScript = redis.NewScript(reorderSource)
	placeScript   = redis.NewScript(placeSource)
	dropScript    = redis.NewScript(dropSource)
	replayScript  = redis.NewScript(recordSource + replaySource)
)

// Reorder puts a task before or behind all other waiters of key, and reports whether it waits for the key.
//
// It changes the waiters first and the task's record after that. Between the two the task has its new place, but would
// lose it at its next conflict; the other way round, an error would leave it where it is, to jump ahead at some later
// time.
func (e *Engine) Reorder(ctx context.Context, key string, t Task, first bool) (bool, error) {
	where := "last"
	if first {
		where = "first"
	}
	place, err := reorderScript.Run(ctx, e.client, []string{WaitersKey(key)}, t.Entry(), where).Text()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err == nil {
		err = placeScript.Run(ctx, e.client, []string{t.Hash()}, WaitersKey(key), place).Err()
	}
	return true, err
}

// Dropped is what [Engine.Drop] returns for a task that it has deleted.
const Dropped = "dropped"

// Drop deletes a task that is parked, with its uniqueness lock, and removes it from the waiters of key. It returns
// [Dropped], or the state of a task that is not parked on key, and stays.
func (e *Engine) Drop(ctx context.Context, key string, t Task) (string, error) {
	// The task goes first, and only if it has not been woken: its entry that is left is one of a waiter that is gone,
	// which a wake skips. In the other order a crash, or a task that is about to park, would leave a task that no wake
	// finds.
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

// Replay moves an archived task to the tail of its queue, with its conflicts counted anew. It returns "archived" when
// it did, else the state of the task, "gone" when asynq knows no such task.
func (e *Engine) Replay(ctx context.Context, t Task) (string, error) {
	keys := []string{t.Hash(), t.Prefix() + "archived", t.Prefix() + "pending"}
	return e.runSettled(ctx, replayScript, keys, t.ID, time.Now().UnixNano())
}
