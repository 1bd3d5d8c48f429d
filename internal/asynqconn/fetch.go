package asynqconn

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fetch gives asynq a task that was taken for it, or takes some.
func (c *Conn) fetch(ctx context.Context, keys []string) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha")
	t, ok := c.intake.Take()
	if !ok {
		queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
		if err := c.intake.Fetch(ctx, queue); err != nil {
			cmd.SetErr(err)
			return cmd
		}
		if t, ok = c.intake.Take(); !ok {
			cmd.SetErr(redis.Nil)
			return cmd
		}
	}
	c.tasks.Fetched(t)
	cmd.SetVal(t.Message)
	return cmd
}
