package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// tombstoneTTL is how long it is remembered which run of a moved task went on. It must outlast every way in which asynq may
// bring another one back: recovery after a crash (2 minutes) and a shutdown that the whole fleet spends stopped.
const tombstoneTTL = 24 * time.Hour

// original is what the original of a moved task calls itself on a tombstone.
const original = "original"

// Claim decides whether a task that has been moved, or may have been, is the one that runs: call it with the task's locks
// held, before its handler. It returns false when another copy has run, is running or will run; the handler must then
// return an error that matches asynq.RevokeTask. The same copy may claim again, for its retries.
func (q *Queue) Claim(ctx context.Context, t Task, headers map[string]string) (bool, error) {
	m, ok := MovedFrom(t, headers)
	if !ok {
		name, err := q.client.HGet(ctx, t.hash(), "railtoken:move").Result()
		if errors.Is(err, redis.Nil) {
			return true, nil // never moved
		}
		if err != nil {
			return false, fmt.Errorf("delayqueue: claim task %s: %w", t, err)
		}
		m = Moved{move: name, copy: original}
	}
	n, err := claimScript.Run(ctx, q.client, []string{tombstone(m.move)}, m.copy, tombstoneTTL.Milliseconds()).Int()
	if err != nil {
		return false, fmt.Errorf("delayqueue: claim task %s: %w", t, err)
	}
	return n == 1, nil
}

// tombstone returns the name of what is remembered of a move.
func tombstone(move string) string { return "railtoken:moved:{" + move + "}" }
