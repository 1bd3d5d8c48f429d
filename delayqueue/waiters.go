package delayqueue

import (
	"context"
	"fmt"
	"time"
)

// Waiter is a task that waits for a key.
type Waiter struct {
	Task  Task
	Since time.Time // its first conflict, by the clock of Redis
}

// Waiters returns the first n tasks that wait for key, the next in line first. Some may be gone: a wake skips those.
func (q *Queue) Waiters(ctx context.Context, key string, n int) ([]Waiter, error) {
	if n <= 0 {
		return nil, nil
	}
	entries, err := q.client.ZRangeWithScores(ctx, registry(key), 0, int64(n)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("delayqueue: list waiters: %w", err)
	}
	waiters := make([]Waiter, 0, len(entries))
	for _, e := range entries {
		member, _ := e.Member.(string)
		t, err := parseMember(member)
		if err != nil {
			return nil, err
		}
		waiters = append(waiters, Waiter{Task: t, Since: time.UnixMicro(int64(e.Score))})
	}
	return waiters, nil
}
