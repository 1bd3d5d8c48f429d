package line

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/pipeline"
)

// verdict is what an entry is at the front of its sequence, in the words of head.lua.
type verdict string

const (
	headGone   verdict = "gone"
	headLost   verdict = "lost"
	headFailed verdict = "failed"
)

// taskState is the state of a task in a sequence.
type taskState struct {
	task    Task
	verdict verdict
	state   string    // in asynq's words; empty when asynq knows no such task
	due     time.Time // when it runs again, if it is delayed
	lease   time.Time // the end of asynq's lease on it, when it is active and there is one
}

// live reports whether the task may stand at the front of its sequence.
func (s taskState) live() bool { return s.verdict != headGone }

// look judges the entries of a sequence: see head.lua. Whether tasks are overdue it finds out for the first two only,
// because the callers look again after they have removed these. Each entry is judged in one step; its task may change
// afterwards. But an entry that is no head does not become one again: a task that joins again gets another score.
func (e *Engine) look(ctx context.Context, key string, members []member) ([]taskState, error) {
	all, now := make([]taskState, len(members)), time.Now()
	calls := make([]pipeline.ScriptCall, len(members))
	for i, m := range members {
		t := taskOf(m.entry)
		all[i].task = t
		names := []string{t.Hash()}
		if t.Queue != "" { // otherwise it cannot exist, and its keys have no slot in common
			names = append(names, asynqwire.Lease(t.Queue), asynqwire.Retry(t.Queue), asynqwire.Scheduled(t.Queue))
		}
		calls[i] = pipeline.ScriptCall{Script: headStep, Keys: names, Args: []any{
			e.names.Sequence(key), t.ID, now.UnixNano(), int(LostAfter.Seconds()), int(LeftAfter.Seconds()),
		}}
	}
	for i, cmd := range e.pipeline(ctx, calls) {
		r, s := replyOf(cmd), &all[i]
		s.verdict, s.state = verdict(r.text()), r.text()
		at, deadline := r.text(), r.text()
		if r.err != nil {
			return nil, fmt.Errorf("delayqueue: the state of task %s: %w", s.task, r.err)
		}
		if score, err := strconv.ParseFloat(at, 64); err == nil && score > 0 {
			if s.state == "active" {
				s.lease = time.Unix(int64(score), 0)
			} else {
				s.due = time.Unix(int64(score), 0)
			}
		}
		if s.live() && i < frontSize {
			over, err := e.isOverdue(ctx, *s, deadline, now)
			if err != nil {
				return nil, err
			}
			if over {
				s.verdict = headGone
			}
		}
	}
	return all, nil
}

// isOverdue reports whether a task waits although its deadline has passed. Of a pending task that was never refused it
// does not know, because its message would have to be read at each look: the end of its run wakes the next task (passOn).
func (e *Engine) isOverdue(ctx context.Context, s taskState, noted string, now time.Time) (bool, error) {
	delayed := s.state == "retry" || s.state == "scheduled"
	if !delayed && s.state != "pending" {
		return false, nil
	}
	deadline, err := strconv.ParseInt(noted, 10, 64)
	if err != nil && delayed { // it was never refused, or its deadline would have been noted
		message, err := e.client.HGet(ctx, s.task.Hash(), asynqwire.MessageField).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return false, fmt.Errorf("delayqueue: the deadline of task %s: %w", s.task, err)
		}
		deadline = deadlineOf(message)
	}
	return passed(deadline, now), nil
}
