package ends

import (
	"context"
	"strings"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// moved returns the queue to which a task has moved, where a strategy lets it wait; "" if it has not.
func (w *Waiters) moved(ctx context.Context, from, id string) (string, error) {
	if !w.oneNode {
		return "", nil // tasks never move there
	}
	queues, err := w.client.SMembers(ctx, asynqwire.Queues).Result()
	if err != nil {
		return "", err
	}
	for _, queue := range queues {
		if queue == from {
			continue
		}
		found, err := w.client.HMGet(ctx, asynqwire.Hash(queue, id), awaitedField, asynqwire.MessageField).Result()
		if err != nil {
			return "", err
		}
		channels, _ := found[0].(string)
		message, _ := found[1].(string)
		if strings.Contains(channels, w.channel) || asynqwire.TransferredFrom(message, from) {
			return queue, nil
		}
	}
	return "", nil
}

// move notes that a task is in another queue. Only the goroutine that looks at it may call this.
func (w *Waiters) move(c *waiter, queue string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
	c.queue = queue
	name := [2]string{queue, c.id}
	if w.waiting[name] == nil {
		w.waiting[name] = map[*waiter]struct{}{}
	}
	w.waiting[name][c] = struct{}{}
}
