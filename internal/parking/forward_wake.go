package parking

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/keys"
)

// ForwardWake passes on the wake of a task that ends without trying its key: the next waiter is woken. It also removes
// the task from the sequence that [Engine.EnqueueInOrder] added it to, which its headers name; without headers the task
// keeps its position there. It does nothing for a task that was never parked or in a sequence.
func (e *Engine) ForwardWake(ctx context.Context, t Task, headers map[string]string) error {
	name, err := e.client.HGet(ctx, t.Hash(), "railtoken:waiters").Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if key, ok := KeyOf(name); ok {
		var w Woken
		w, err = e.Wake(ctx, key, WakeOptions{Leaver: t})
		e.repaired(key, w)
	}
	encoded, _, _ := strings.Cut(headers[sequenceHeader], " ")
	if key, ok := keys.Decode(encoded); ok && EnqueuedFor(t, key, headers) { // else it has the headers of another task
		left, failed := e.Remove(ctx, t, key)
		if failed == nil && left.Parked > 0 && len(left.Next) > 0 {
			_, failed = e.WakeTask(ctx, key, left.Next[0])
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("delayqueue: forward the wake of task %s: %w", t, err)
	}
	return nil
}
