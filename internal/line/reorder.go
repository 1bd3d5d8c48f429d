package line

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/reorder.lua
	reorderSource string
	//go:embed lua/set_position.lua
	setPositionSource string

	reorderScript     = redis.NewScript(reorderSource)
	setPositionScript = redis.NewScript(composed(setPositionSource))
)

// Reorder puts a task before or behind all other waiters of key, and reports whether it waits for the key.
//
// It changes the waiters first and the task's record afterwards. Between the two the task has its new position, but
// would lose it at its next conflict. In the other order, an error would leave the task where it is, and it would jump
// ahead at some later time.
func (e *Engine) Reorder(ctx context.Context, key string, t Task, first bool) (bool, error) {
	where := "last"
	if first {
		where = "first"
	}
	place, err := reorderScript.Run(ctx, e.client, []string{e.names.Waiters(key)}, t.Entry(), where).Text()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err == nil {
		err = setPositionScript.Run(ctx, e.client, []string{t.Hash()}, e.names.Waiters(key), place).Err()
	}
	return true, err
}
