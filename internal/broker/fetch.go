package broker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// parkingMost limits a fetch that only takes tasks which are parked. asynq can stop only between two fetches, and a fetch
// that does not end is taken for one that is stuck.
const parkingMost = 20 * time.Millisecond

// fetch gives asynq a task that was taken for it, or takes some. more reports that there may be others, because those
// that came are being parked, or were.
func (c *Conn) fetch(ctx context.Context, keys []string) (cmd *redis.Cmd, more bool) {
	cmd = redis.NewCmd(ctx, "evalsha")
	queue, _ := asynqwire.QueueOf(keys[0], "pending")
	began, empty := time.Now(), false
	t, ok := c.intake.Take()
	if !ok && c.look.inVain(ctx) {
		cmd.SetErr(redis.Nil)
		return cmd, false
	}
	for more = true; !ok; t, ok = c.intake.Take() {
		var err error = redis.Nil
		if more && time.Since(began) < parkingMost {
			more, err = c.intake.Fetch(ctx, queue)
			empty = err == nil && !more
		}
		if err != nil {
			c.look.fetched(empty)
			cmd.SetErr(err)
			return cmd, more
		}
	}
	c.look.fetched(false)
	cmd.SetVal(t.Message)
	return cmd, false
}
