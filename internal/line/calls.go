package line

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/pipeline"
	"github.com/railtoken/railtoken/internal/rediswire"
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
	replies := make([]*redis.Cmd, len(calls))
	if len(calls) == 1 {
		replies[0] = calls[0].script.Run(ctx, e.client, calls[0].keys, calls[0].args...)
		return replies
	}
	_, _ = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range calls {
			args := []any{"evalsha", c.script.Hash(), len(c.keys)}
			for _, key := range c.keys {
				args = append(args, key)
			}
			replies[i] = redis.NewCmd(ctx, append(args, c.args...)...)
			replies[i].SetFirstKeyPos(3)
			// go-redis would send all commands of a pipeline to a Cluster again when the first one is refused because a
			// slot moves, and those of another node to both nodes at the same time.
			_ = pipe.Process(ctx, pipeline.Once{Cmd: replies[i]}) // the reply has the error
		}
		return nil
	})
	for i, c := range calls {
		if rediswire.Says(replies[i].Err(), rediswire.NoScript) {
			replies[i] = c.script.Eval(ctx, e.client, c.keys, c.args...)
		}
	}
	return replies
}
