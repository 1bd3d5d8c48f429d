package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

// Leave passes on what a task had that ends without ever trying its key: the wake that it was given, and its place in the line that
// [Queue.Enqueue] has put it in, which its headers tell. The next in line is woken. Without headers a place in line is kept. It does nothing for a
// task that was never parked or in line.
func (q *Queue) Leave(ctx context.Context, t Task, headers map[string]string) error {
	if err := errors.Join(q.leaveWaiters(ctx, t), q.leaveEnqueued(ctx, t, headers)); err != nil {
		return fmt.Errorf("delayqueue: task %s leaves: %w", t, err)
	}
	return nil
}

// leaveWaiters passes on the wake of a task.
func (q *Queue) leaveWaiters(ctx context.Context, t Task) error {
	name, err := q.client.HGet(ctx, t.hash(), "railtoken:registry").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if key, ok := keyOf(name); ok {
		w, err := q.Wake(ctx, key, WakeOptions{Leaver: t})
		q.repaired(key, w)
		return err
	}
	return nil
}

// leaveEnqueued takes a task, which is parked no more, out of the line that it was enqueued for.
func (q *Queue) leaveEnqueued(ctx context.Context, t Task, headers map[string]string) error {
	encoded, _, _ := strings.Cut(headers[headerLine], " ")
	key, ok := keys.Decode(encoded)
	if !ok {
		return nil
	}
	if !EnqueuedFor(t, key, headers) {
		return nil // it has the headers of another task
	}
	left, err := q.LeaveLine(ctx, t, key)
	if err == nil && left.Parked > 0 && len(left.Next) > 0 {
		_, err = q.WakeTask(ctx, key, left.Next[0])
	}
	return err
}
