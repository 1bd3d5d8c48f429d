package pipeline

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/rediswire"
)

// A ScriptCall is a script and what it is called with.
type ScriptCall struct {
	Script *redis.Script
	Keys   []string
	Args   []any
}

// RunScripts runs scripts in one round trip to each node, and returns the reply of each.
func RunScripts(ctx context.Context, client redis.UniversalClient, calls []ScriptCall) []*redis.Cmd {
	replies := make([]*redis.Cmd, len(calls))
	if len(calls) == 1 {
		replies[0] = calls[0].Script.Run(ctx, client, calls[0].Keys, calls[0].Args...)
		return replies
	}
	_, _ = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, c := range calls {
			args := []any{"evalsha", c.Script.Hash(), len(c.Keys)}
			for _, key := range c.Keys {
				args = append(args, key)
			}
			replies[i] = redis.NewCmd(ctx, append(args, c.Args...)...)
			replies[i].SetFirstKeyPos(3)
			// go-redis would send all commands of a pipeline to a Cluster again when the first one is refused because a
			// slot moves, and those of another node to both nodes at the same time.
			_ = pipe.Process(ctx, Once{Cmd: replies[i]}) // the reply has the error
		}
		return nil
	})
	for i, c := range calls {
		if rediswire.Says(replies[i].Err(), rediswire.NoScript) {
			replies[i] = c.Script.Eval(ctx, client, c.Keys, c.Args...)
		}
	}
	return replies
}
