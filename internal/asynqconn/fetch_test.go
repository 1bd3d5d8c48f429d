package asynqconn

import (
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/redistest"
)

// Redis undoes nothing of a script that fails: without a lease asynq would never recover the task.
func TestAFetchThatFailsHalfwayLeavesALease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	if _, err := asynq.NewClientFromRedisClient(admin).Enqueue(asynq.NewTask("test", nil),
		asynq.TaskID("a")); err != nil {
		t.Fatal(err)
	}
	c := New(server.Client(t, server.User(t, "u", "~*", "+@all", "-hmget")), Options{Tasks: &witness{}})
	keys := []string{
		"asynq:{default}:pending", "asynq:{default}:paused", "asynq:{default}:active",
		"asynq:{default}:lease",
	}
	if err := c.fetch(t.Context(), keys).Err(); err == nil {
		t.Error("the fetch has not failed")
	}
	if err := admin.ZScore(t.Context(), "asynq:{default}:lease", "a").Err(); err != nil {
		t.Error(err)
	}
}
