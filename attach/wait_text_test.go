package attach_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

func TestEveryWaitHasOneTextUntilItEnds(t *testing.T) {
	t.Parallel()
	h := newHotKey(t, attach.Options{Strategy: middleware.Requeue{}})
	var tasks []*asynq.TaskInfo
	const most = 50 // the first by a call of its own, others by the script that fetches them
	for i := range most {
		tasks = append(tasks, h.record(h.producer, "hot", asynq.TaskID(fmt.Sprint("t", i)), asynq.Retention(time.Hour)))
	}
	for range tasks {
		receive(t, h.parked)
	}
	for _, task := range tasks {
		if info := h.settled(task, asynq.TaskStateRetry); info.LastErr != "railtoken: waits for its keys" || !info.LastFailedAt.IsZero() {
			t.Errorf("%s: the last error of a waiting task is %q, at %v", task.ID, info.LastErr, info.LastFailedAt)
		}
	}
	close(h.end)
	for _, task := range tasks {
		if info := h.settled(task, asynq.TaskStateCompleted); info.LastErr != "" {
			t.Errorf("%s: the last error of a completed task is %q", task.ID, info.LastErr)
		}
	}
}
