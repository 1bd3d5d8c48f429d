package broker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// The purposes of the calls of a heartbeat. asynq begins no task while one is under way, so with lanes it waits for no master that hangs.
const (
	beating   = "beat"
	extending = "extend"
)

// beat has a part of asynq's heartbeat that is for the server itself carried out.
func (c *Conn) beat(ctx context.Context, sum string, keys []string, send func(context.Context) *redis.Cmd) *redis.Cmd {
	defer c.intake.Beat()()
	if len(keys) == 0 {
		return send(ctx)
	}
	return byItself(ctx, c.lanes, beating, keys[0], answer(ctx, sum, nil), send)
}

// ZAdd adds members to a sorted set. asynq's heartbeat begins with it.
func (c *Conn) ZAdd(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if key != asynqwire.ServersKey && key != asynqwire.WorkersKey {
		return c.UniversalClient.ZAdd(ctx, key, members...)
	}
	defer c.intake.Beat()()
	return byItself(ctx, c.lanes, beating, key, redis.NewIntCmd(ctx), func(ctx context.Context) *redis.IntCmd {
		return c.UniversalClient.ZAdd(ctx, key, members...)
	})
}

// ZAddXX changes members of a sorted set. asynq's heartbeat ends with it, and extends the leases of the server's tasks.
func (c *Conn) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	queue, ok := asynqwire.QueueOf(key, "lease")
	if !ok {
		return c.UniversalClient.ZAddXX(ctx, key, members...)
	}
	defer c.intake.Beat()()
	return byItself(ctx, c.lanes, extending, key, redis.NewIntCmd(ctx), func(ctx context.Context) *redis.IntCmd {
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
	})
}
