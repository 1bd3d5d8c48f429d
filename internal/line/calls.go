package line

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// step runs one step.
func (e *Engine) step(ctx context.Context, script *redis.Script, key string, args ...any) *redis.Cmd {
	return script.Run(ctx, e.client, []string{key}, args...)
}

// pipeline runs scripts in one round trip to each node, and returns the reply of each.
func (e *Engine) pipeline(ctx context.Context, calls []pipeline.ScriptCall) []*redis.Cmd {
	return pipeline.RunScripts(ctx, e.client, calls)
}
