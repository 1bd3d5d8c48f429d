package asynqconn

import (
	"context"
	"crypto/rand"
	_ "embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/fetch.lua
	fetchSource string

	fetchScript = redis.NewScript(fetchSource)
)

// fetch fetches a task as asynq's own script does, and tells who answers for it what its hash has noted.
func (c *Conn) fetch(ctx context.Context, keys []string, args []any) *redis.Cmd {
	run := rand.Text()
	cmd := fetchScript.Run(ctx, c.UniversalClient, keys, append(args[:len(args):len(args)], run)...)
	reply, err := cmd.Slice()
	if err != nil {
		return cmd
	}
	texts := make([]string, 6)
	for i := range min(len(reply), len(texts)) {
		texts[i], _ = reply[i].(string)
	}
	queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
	c.tasks.Fetched(Fetched{
		Queue: queue, ID: texts[0], Run: run, Message: texts[1], Retried: texts[2],
		Conflicts: texts[3], First: texts[4], Woken: texts[5] != "",
	})
	if reply[1] == nil { // its hash is gone: asynq's own script answers nil then too
		cmd.SetErr(redis.Nil)
	}
	cmd.SetVal(reply[1])
	return cmd
}
