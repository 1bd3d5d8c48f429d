package broker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// ZAdd adds members to a sorted set. asynq's heartbeat begins with it.
func (c *Conn) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if key == asynqwire.ServersKey || key == asynqwire.WorkersKey {
		defer c.intake.Beat()()
	}
	return c.UniversalClient.ZAdd(ctx, key, members...)
}

// ZAddXX changes members of a sorted set. asynq's heartbeat ends with it, and extends the leases of the server's tasks.
func (c *Conn) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	queue, ok := asynqwire.QueueOf(key, "lease")
	if !ok {
		return c.UniversalClient.ZAddXX(ctx, key, members...)
	}
	defer c.intake.Beat()()
	began := time.Now()
	extended := c.UniversalClient.ZAddXX(ctx, key, members...)
	if extended.Err() == nil {
		ids := make([]string, len(members))
		for i, member := range members {
			ids[i], _ = member.Member.(string)
		}
		c.intake.Extended(queue, ids, began)
	}
	return extended
}
