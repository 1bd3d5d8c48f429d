package parking

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// overdue is our word for the state of a task that is delayed and whose deadline has passed. asynq does not run its
// handler again: it retries the task, for days, until it archives it. Nobody should wait for that.
const overdue = "overdue"

// standing is a task in line and its state in asynq, empty when asynq has no such task, or overdue.
type standing struct {
	task  Task
	state string
	due   time.Time // of the first that was looked at, when it is delayed
	lease time.Time // the end of asynq's lease on it, when it is active
}

// live reports whether the task has yet to finish.
func (s standing) live() bool {
	return s.state != "" && s.state != "archived" && s.state != "completed" && s.state != overdue
}

// lost reports whether the worker of an active task must have died, and asynq's recoverer cannot be at it yet.
func (s standing) lost(now time.Time) bool {
	return !s.lease.IsZero() && now.After(s.lease.Add(LostAfter)) && now.Before(s.lease.Add(LeftAfter))
}

// look asks asynq's keys for the states of tasks, and of the first one when it is due if it is delayed, or until when
// asynq's lease on it lasts if it is active. Of the first two it finds out whether they are overdue: who removes those
// in front looks again. It stands apart from the scripts: on a Redis Cluster a task and a line are on different nodes.
// What is seen may have changed since, but a task that is gone stays so: nobody joins a line before asynq has the task.
func (e *Engine) look(ctx context.Context, members []string) ([]standing, error) {
	all, fields := make([]standing, len(members)), make([]*redis.SliceCmd, len(members))
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

// stateIn returns the state in the fields of a task's hash, and overdue when that is to be found out.
func (e *Engine) stateIn(ctx context.Context, t Task, fields []any, deadlines bool, now time.Time) (string, error) {
	if fields[0] == nil {
		return "", nil
	}
	state, _ := fields[0].(string)
	if state == "" {
		return "", fmt.Errorf("delayqueue: the state of task %s is empty", t)
	}
	if !deadlines || state != "retry" && state != "scheduled" {
		return state, nil
	}
	var deadline int64
	if text, ok := fields[1].(string); ok {
		deadline, _ = strconv.ParseInt(text, 10, 64)
	} else { // it was never refused, or its deadline would have been noted
		message, err := e.client.HGet(ctx, t.Hash(), "msg").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return "", fmt.Errorf("delayqueue: the deadline of task %s: %w", t, err)
		}
		deadline = deadlineOf(message)
	}
	if deadline > 0 && now.After(time.Unix(deadline, 0)) {
		return overdue, nil
	}
	return state, nil
}
