package line

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
)

// A scriptCall is a script and what it is called with.
type scriptCall struct {
	script *redis.Script
	keys   []string
	args   []any
}

// step runs one step.
func (e *Engine) step(ctx context.Context, script *redis.Script, key string, args ...any) *redis.Cmd {
	return script.Run(ctx, e.client, []string{key}, args...)
}

// pipeline runs scripts in one round trip to each node, and returns the reply of each.
func (e *Engine) pipeline(ctx context.Context, calls []scriptCall) []*redis.Cmd {
	all := make([]pipeline.ScriptCall, len(calls))
	for i, c := range calls {
		all[i] = pipeline.ScriptCall{Script: c.script, Keys: c.keys, Args: c.args}
	}
	return pipeline.RunScripts(ctx, e.client, all)
}
