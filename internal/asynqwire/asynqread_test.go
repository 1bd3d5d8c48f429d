package asynqwire_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/asynqwire"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// The promise is that of asynq's Inspector, for a user who may only read.
func TestAReaderSeesWhatTheInspectorSees(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	reader := server.Client(t, server.User(t, "reader", "~asynq:*", "+@read", "+@connection"))
	began, end := make(chan struct{}, 10), make(chan struct{})
	s := asynq.NewServerFromRedisClient(client, asynq.Config{
		Queues: map[string]int{"mail": 3, "default": 1}, Concurrency: 7, LogLevel: asynq.FatalLevel,
		RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return time.Hour },
		ShutdownTimeout: time.Millisecond,
	})
	if err := s.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fail" {
			return errors.New("no paper")
		}
		began <- struct{}{}
		<-end
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(end); s.Shutdown() })
	enqueue(t, client, "run", asynq.TaskID("run"), asynq.Queue("mail"))
	enqueue(t, client, "fail", asynq.TaskID("fail"), asynq.MaxRetry(5))
	enqueue(t, client, "later", asynq.TaskID("later"), asynq.ProcessIn(time.Hour), asynq.Deadline(time.Now().Add(2*time.Hour)),
		asynq.Retention(time.Hour), asynq.Timeout(time.Minute))
	redistest.Receive(t, began, 30*time.Second)
	inspector := asynq.NewInspectorFromRedisClient(client)
	until(t, func() bool {
		info, err := inspector.GetTaskInfo("default", "fail")
		if err != nil || info.State != asynq.TaskStateRetry {
			return false
		}
		servers, err := inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 1
	})
	for queue, ids := range map[string][]string{"mail": {"run"}, "default": {"fail", "later"}} {
		for _, id := range ids {
			info, err := inspector.GetTaskInfo(queue, id)
			if err != nil {
				t.Fatal(err)
			}
			got, found, err := asynqwire.TaskOf(t.Context(), reader, queue, id)
			if err != nil || !found {
				t.Fatalf("%s: found %v, error %v", id, found, err)
			}
			if got.Type != info.Type || got.State != info.State.String() || got.LastErr != info.LastErr ||
				got.ID != info.ID || got.Queue != info.Queue || string(got.Payload) != string(info.Payload) || !maps.Equal(got.Headers, info.Headers) ||
				got.Timeout != info.Timeout || got.Retention != info.Retention ||
				got.MaxRetry != info.MaxRetry || got.Retried != info.Retried || !got.LastFailedAt.Equal(info.LastFailedAt) ||
				!got.Deadline.Equal(info.Deadline) ||
				(got.State == "retry" || got.State == "scheduled") && !got.NextProcessAt.Equal(info.NextProcessAt) {
				t.Errorf("%+v, and asynq's Inspector says %+v", got, info)
			}
		}
	}
	if _, found, err := asynqwire.TaskOf(t.Context(), reader, "none", "none"); found || err != nil {
		t.Errorf("a task that does not exist: found %v, error %v", found, err)
	}
	servers, err := asynqwire.Servers(t.Context(), reader)
	want, _ := inspector.Servers()
	if err != nil || len(servers) != 1 {
		t.Fatalf("servers %+v, error %v", servers, err)
	}
	got := servers[0]
	if got.Host != want[0].Host || got.PID != want[0].PID || got.Concurrency != 7 || got.Running != 1 || got.Queues["mail"] != 3 {
		t.Errorf("%+v, and asynq's Inspector says %+v", got, want[0])
	}
	runs, err := got.Runs(t.Context(), reader)
	started := want[0].ActiveWorkers[0].Started
	if err != nil || len(runs) != 1 || runs[0].ID != "run" || runs[0].Queue != "mail" || !runs[0].Started.Equal(started) {
		t.Errorf("runs %+v, error %v, started %v", runs, err, started)
	}
}

func enqueue(t *testing.T, client *redis.Client, taskType string, opts ...asynq.Option) {
	t.Helper()
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTaskWithHeaders(taskType, []byte("an order"), map[string]string{"trace": "7"}), opts...); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); {
		if time.Now().After(end) {
			t.Fatal("it has not come to that in 30s")
		}
		<-time.After(20 * time.Millisecond)
	}
}
