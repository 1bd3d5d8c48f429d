package node

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// once is a command that no client sends again by itself, whatever its MaxRetries. An acquire call that was sent twice could be granted
// once more after its release, and the second answer to a release tells nothing of what the first one did.
type once struct{ *redis.Cmd }

func newOnce(ctx context.Context, args []any) once { return once{redis.NewCmd(ctx, args...)} }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }
