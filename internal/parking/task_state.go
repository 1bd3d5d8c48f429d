package parking

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// taskState is the state of a task in asynq: empty when asynq knows no such task, or overdue.
type taskState struct {
	task  Task
	state string
	due   time.Time // of the first task that was read, when it is delayed
	lease time.Time // the end of asynq's lease on it, when it is active
}

// live reports whether the task has yet to finish.
func (s taskState) live() bool {
	return s.state != "" && s.state != "archived" && s.state != "completed" && s.state != overdue
}

// lost reports whether the worker of an active task must have died, and asynq's recoverer cannot be working on it yet.
func (s taskState) lost(now time.Time) bool {
	return !s.lease.IsZero() && now.After(s.lease.Add(LostAfter)) && now.Before(s.lease.Add(LeftAfter))
}

// look reads the states of tasks from asynq's keys, and of the first one also when it is due, or when asynq's lease on
// it ends. Whether tasks are overdue it finds out for the first two only, because the callers look again after they
// have removed these. look is not part of the scripts, because on a Redis Cluster a task and a sequence are on
// different nodes. The states may have changed since. But a task that is gone stays gone, because no task joins a
// sequence before asynq has it.
func (e *Engine) look(ctx context.Context, members []string) ([]taskState, error) {
	all, fields := make([]taskState, len(members)), make([]*redis.SliceCmd, len(members))
	scores, now := map[string]*redis.FloatCmd{}, time.Now()
	_, _ = e.client.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its error
		for i, member := range members {
			all[i].task = taskOf(member)
			fields[i] = pipe.HMGet(ctx, all[i].task.Hash(), "state", "railtoken:deadline")
		}
		for state, set := range map[string]string{"retry": "retry", "scheduled": "scheduled", "active": "lease"} {
			scores[state] = pipe.ZScore(ctx, all[0].task.Prefix()+set, all[0].task.ID)
		}
		return nil
	})
	for i, cmd := range fields {
		found, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("delayqueue: the state of task %s: %w", all[i].task, err)
		}
		if all[i].state, err = e.stateIn(ctx, all[i].task, found, i < frontSize, now); err != nil {
			return nil, err
		}
	}
	if score, ok := scores[all[0].state]; ok {
		if err := score.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("delayqueue: the time of task %s: %w", all[0].task, err)
		}
		switch at := int64(score.Val()); {
		case at <= 0:
		case all[0].state == "active":
			all[0].lease = time.Unix(at, 0)
		default:
			all[0].due = time.Unix(at, 0)
		}
	}
	return all, nil
}

// stateIn returns the state in the fields of a task's hash; overdue only if deadlines is true. A pending task that was
// never refused is not overdue, because its message would have to be read at each look: the end of its run wakes the
// next task (passOn).
func (e *Engine) stateIn(ctx context.Context, t Task, fields []any, deadlines bool, now time.Time) (string, error) {
	if fields[0] == nil {
		return "", nil
	}
	state, _ := fields[0].(string)
	if state == "" {
		return "", fmt.Errorf("delayqueue: the state of task %s is empty", t)
	}
	waits := state == "retry" || state == "scheduled"
	if !deadlines || !waits && state != "pending" {
		return state, nil
	}
	var deadline int64
	if text, ok := fields[1].(string); ok {
		deadline, _ = strconv.ParseInt(text, 10, 64)
	} else if waits { // it was never refused, or its deadline would have been noted
		message, err := e.client.HGet(ctx, t.Hash(), "msg").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return "", fmt.Errorf("delayqueue: the deadline of task %s: %w", t, err)
		}
		deadline = deadlineOf(message)
	}
	if passed(deadline, now) {
		return overdue, nil
	}
	return state, nil
}
