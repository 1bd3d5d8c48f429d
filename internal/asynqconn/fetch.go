package asynqconn

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// fetch gives asynq a task that was taken for it, or takes some.
func (c *Conn) fetch(ctx context.Context, keys []string) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha")
	queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
	t, ok := c.intake.Take()
	for more := true; !ok; t, ok = c.intake.Take() {
		var err error = redis.Nil
		if more {
			more, err = c.intake.Fetch(ctx, queue)
		}
		if err != nil {
			cmd.SetErr(err)
			return cmd
		}
	}
	c.tasks.Fetched(t)
	cmd.SetVal(t.Message)
	return cmd
}
