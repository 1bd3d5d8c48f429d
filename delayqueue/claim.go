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
// return an error that matches asynq.RevokeTask. The same copy may claim again, for its retries, as long as asynq has it.
func (q *Queue) Claim(ctx context.Context, t Task, headers map[string]string) (bool, error) {
	mine, err := q.claim(ctx, t, headers)
	if err != nil {
		return false, fmt.Errorf("delayqueue: claim task %s: %w", t, err)
	}
	return mine, nil
}

// claim is in steps, as the task and the tombstone need not lie on the same server. The name of the move goes first to the task and then, with who
// runs, to the tombstone: a copy that has run has both. One that was put back afterwards, because the client has sent its enqueue again, finds
// itself on the tombstone but not the name on its task. A worker of a version that put no name on the task leaves no note beside the tombstone
// either, and what it began goes on.
func (q *Queue) claim(ctx context.Context, t Task, headers map[string]string) (bool, error) {
	m, moved := MovedFrom(t, headers)
	if !moved {
		m.copy = original
	}
	record, err := q.client.HMGet(ctx, t.hash(), "railtoken:move", "railtoken:ran").Result()
	if err != nil {
		return false, err
	}
	if later, ok := record[0].(string); ok { // it has been moved on: one of it and its own copy runs
		m.move = later
	} else if !moved {
		return true, nil // never moved
	}
	if ran, _ := record[1].(string); ran != m.move {
		who, err := q.whose(ctx, m.move, m.copy)
		if err != nil || who == "own" || who == "another" {
			return false, err
		}
		if n, err := markScript.Run(ctx, q.client, []string{t.hash()}, m.move).Int(); err != nil || n == 0 {
			return false, err
		}
	}
	n, err := claimScript.Run(ctx, q.client, []string{tombstone(m.move), noteBeside(m.move)}, m.copy, tombstoneTTL.Milliseconds()).Int()
	return n == 1, err
}

// whose tells which run of a moved task has begun under a name, as the function of that name in moved.lua does. Its calls need one key each, so
// that they are answered while their slot moves; claim.lua writes both at once, and the one that is read first decides.
func (q *Queue) whose(ctx context.Context, move, who string) (string, error) {
	var ran *redis.StringCmd
	var note *redis.IntCmd
	_, err := q.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		ran, note = pipe.Get(ctx, tombstone(move)), pipe.Exists(ctx, noteBeside(move))
		return nil
	})
	switch {
	case errors.Is(ran.Err(), redis.Nil):
		return "nobody", nil
	case err != nil:
		return "", err
	case ran.Val() != who:
		return "another", nil
	case note.Val() == 0:
		return "unnoted", nil
	}
	return "own", nil
}

// tombstone returns the name of what is remembered of a move, and noteBeside that of the note beside it.
func tombstone(move string) string  { return "railtoken:moved:{" + move + "}" }
func noteBeside(move string) string { return tombstone(move) + ":noted" }
