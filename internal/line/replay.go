package line

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

var (
	//go:embed lua/replay.lua
	replaySource string

	replayScript = redis.NewScript(composed(replaySource))
)

// Replay moves an archived task to the tail of its queue and resets its conflicts. It returns "archived" when it did
// so, and otherwise the state of the task; "gone" when asynq knows no such task.
func (e *Engine) Replay(ctx context.Context, t Task) (string, error) {
	keys := []string{t.Hash(), asynqwire.Archived(t.Queue), asynqwire.Pending(t.Queue)}
	return e.runSettled(ctx, replayScript, keys, t.ID, time.Now().UnixNano()).Text()
}
