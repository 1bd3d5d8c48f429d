package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
)

// Pause has no server take tasks from a queue any more, in any of its lanes, as asynq's own pause does for one without lanes. Tasks that
// run go on. It reports whether anything changed, and returns an error if asynq has never heard of the queue.
func (i *Inspector) Pause(ctx context.Context, queue string) (changed bool, err error) {
	now := time.Now().Unix()
	return i.eachLane(ctx, queue, "pause", func(p redis.Pipeliner, key string) { p.SetNX(ctx, key, now, 0) })
}

// Unpause ends a pause of a queue in all of its lanes. It reports whether there was any.
func (i *Inspector) Unpause(ctx context.Context, queue string) (changed bool, err error) {
	return i.eachLane(ctx, queue, "unpause", func(p redis.Pipeliner, key string) { p.Del(ctx, key) })
}

// eachLane sends a command for the mark of a pause of a queue and of each of its lanes, also of those that have had no task yet.
func (i *Inspector) eachLane(ctx context.Context, queue, what string, command func(p redis.Pipeliner, key string)) (changed bool, err error) {
	l, err := lanes.New(i.opts.Lanes)
	if err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	known, err := i.opts.Tasks.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return false, fmt.Errorf("inspect: %s %s: list the queues: %w", what, queue, err)
	}
	names := []string{queue}
	if _, one := l.In(queue); !one {
		names = l.Queues(queue)
	}
	if !slices.ContainsFunc(known, func(name string) bool { return slices.Contains(names, name) }) {
		return false, fmt.Errorf("inspect: %s %q: no task was ever enqueued to this queue: correct its name", what, queue)
	}
	replies, err := i.opts.Tasks.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			command(p, asynqwire.Paused(name))
		}
		return nil
	})
	for _, reply := range replies {
		switch r := reply.(type) {
		case *redis.BoolCmd:
			changed = changed || r.Val()
		case *redis.IntCmd:
			changed = changed || r.Val() > 0
		}
	}
	if err != nil {
		err = fmt.Errorf("inspect: %s %s: some of its lanes may be left: repeat it: %w", what, queue, err)
	}
	return changed, err
}
