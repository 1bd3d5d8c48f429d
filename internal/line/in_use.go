package line

import (
	"context"
	"fmt"
	"slices"

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
