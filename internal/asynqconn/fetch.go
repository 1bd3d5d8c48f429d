package asynqconn

import (
	"context"
	"crypto/rand"
	_ "embed"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/fetch.lua
	fetchSource string

	fetchScript = redis.NewScript(fetchSource)
)

// fetchAttempts is how often a fetch is sent while it is not answered.
const fetchAttempts = 2

// fetch does what asynq's own script does, and tells Tasks what the task's hash records. go-redis would repeat an
// unanswered fetch, which takes a second task. Here the second attempt puts back the task that the first may have
// taken.
func (c *Conn) fetch(ctx context.Context, keys []string, args []any) *redis.Cmd {
	for attempt := 1; ; attempt++ {
		cmd := c.fetchOnce(ctx, keys, args)
		if attempt == fetchAttempts || !unanswered(cmd.Err()) || ctx.Err() != nil {
			return cmd
		}
	}
}

func (c *Conn) fetchOnce(ctx context.Context, keys []string, args []any) *redis.Cmd {
	queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
	run, lost := rand.Text(), c.lost.due(queue, time.Now())
	cmd := runOnce(ctx, c.UniversalClient, fetchScript, fetchSource, keys, slices.Concat(args, []any{run}, lost))
	reply, err := cmd.Slice()
	switch {
	case unanswered(cmd.Err()):
		c.lost.add(queue, run, args[0], time.Now())
	case len(lost) > 0:
		c.lost.searched(queue, time.Now())
	}
	if err != nil {
		return cmd
	}
	texts := make([]string, 6)
	for i := range min(len(reply), len(texts)) {
		texts[i], _ = reply[i].(string)
	}
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

// runOnce runs a script, and leaves it to the caller to send it again.
func runOnce(ctx context.Context, client redis.UniversalClient, script *redis.Script, source string, keys []string,
	args []any,
) *redis.Cmd {
	send := func(command, script string) *redis.Cmd {
		all := []any{command, script, len(keys)}
		for _, key := range keys {
			all = append(all, key)
		}
		cmd := redis.NewCmd(ctx, append(all, args...)...)
		cmd.SetFirstKeyPos(3)
		_ = client.Process(ctx, Once{cmd}) // the command has the error
		return cmd
	}
	if cmd := send("evalsha", script.Hash()); !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	return send("eval", source)
}

// Once is a command that go-redis does not send again by itself.
type Once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (Once) NoRetry() bool { return true }
