package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/lanes"
)

// InUse returns the queues of asynq's that a queue consists of: itself, and those of its lanes that have ever had a task. If asynq
// knows none of them, it returns the queue itself.
func (e *Engine) InUse(ctx context.Context, queue string) ([]string, error) {
	if _, inLane := e.names.In(queue); inLane || e.names.Count() == 0 {
		return []string{queue}, nil
	}
	known, err := e.client.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	all := slices.DeleteFunc(known, func(name string) bool { return lanes.Base(name) != queue })
	if len(all) == 0 {
		return []string{queue}, nil
	}
	slices.Sort(all)
	return all, nil
}

// RecordedLanes returns the number of lanes that the tasks have, as the first process that had any has noted it; 0 if none has.
func RecordedLanes(ctx context.Context, client redis.UniversalClient) (int, error) {
	if _, cluster := client.(*redis.ClusterClient); !cluster {
		return 0, nil
	}
	text, err := client.Get(ctx, lanes.Record).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("read the number of lanes: %w", err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("the key %s has %q, which is no number of lanes", lanes.Record, text)
	}
	return n, nil
}
