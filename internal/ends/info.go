package ends

import (
	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/asynqwire"
)

// InfoOf returns a task as asynq's Inspector does, from its message. What cannot be read is zero.
func InfoOf(message string, state asynq.TaskState, result []byte) *asynq.TaskInfo {
	m := asynqwire.ReadMessage(message)
	return &asynq.TaskInfo{
		ID: m.ID, Queue: m.Queue, Type: m.Type, Payload: m.Payload, Headers: m.Headers, Group: m.Group, State: state,
		MaxRetry: m.MaxRetry, Retried: m.Retried, LastErr: m.LastErr, LastFailedAt: m.LastFailedAt,
		Timeout: m.Timeout, Deadline: m.Deadline, Retention: m.Retention, CompletedAt: m.CompletedAt, Result: result,
	}
}
