package asynqwire

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Task is what asynq knows of a task.
type Task struct {
	Message

	State         string    // in asynq's words
	NextProcessAt time.Time // in the states retry and scheduled, else zero
	Result        []byte
}

// TaskOf returns what asynq knows of a task; found is false if that is nothing.
func TaskOf(ctx context.Context, client redis.UniversalClient, queue, id string) (t Task, found bool, err error) {
	prefix := Prefix(queue)
	var stored *redis.SliceCmd
	var due [2]*redis.FloatCmd
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		stored = p.HMGet(ctx, prefix+"t:"+id, "msg", "state", "result")
		due[0], due[1] = p.ZScore(ctx, prefix+"retry", id), p.ZScore(ctx, prefix+"scheduled", id)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return t, false, err
	}
	values := stored.Val()
	message, known := values[0].(string)
	if !known {
		return t, false, nil
	}
	t.Message = ReadMessage(message)
	t.State, _ = values[1].(string)
	if result, ok := values[2].(string); ok {
		t.Result = []byte(result)
	}
	for i, state := range []string{"retry", "scheduled"} {
		if t.State == state && due[i].Err() == nil {
			t.NextProcessAt = time.Unix(int64(due[i].Val()), 0)
		}
	}
	return t, true, nil
}
