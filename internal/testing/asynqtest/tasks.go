// Package asynqtest helps tests to enqueue tasks, to inspect them, and to simulate another version of asynq.
package asynqtest

import (
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Enqueue adds a task to a fake Redis.
func Enqueue(tb testing.TB, m *miniredis.Miniredis, task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	tb.Helper()
	info, err := asynq.NewClientFromRedisClient(redistest.VirtualClient(tb, m)).EnqueueContext(tb.Context(), task, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// Look returns what asynq knows of a task, or nil when it knows none.
func Look(tb testing.TB, m *miniredis.Miniredis, info *asynq.TaskInfo) *asynq.TaskInfo {
	tb.Helper()
	now, err := asynq.NewInspectorFromRedisClient(redistest.VirtualClient(tb, m)).GetTaskInfo(info.Queue, info.ID)
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	return now
}
