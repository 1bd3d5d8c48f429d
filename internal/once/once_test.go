package once

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
)

func TestTheNameOfATaskIsKnownBeforeItIsEnqueued(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	tasks, inspect := asynq.NewClientFromRedisClient(client), asynq.NewInspectorFromRedisClient(client)
	for name, opts := range map[string][]asynq.Option{
		"none":    nil,
		"queue":   {asynq.Queue("a"), asynq.MaxRetry(3)},
		"both":    {asynq.Queue("a"), asynq.TaskID("mine")},
		"twice":   {asynq.Queue("a"), asynq.TaskID("x"), asynq.Queue("b"), asynq.TaskID("last")},
		"another": {asynq.Group("g"), asynq.Queue("c")},
	} {
		task := New("test", []byte("x"), map[string]string{"k": "v"}, opts...)
		info, err := task.Enqueue(t.Context(), tasks, inspect)
		if err != nil || info.ID != task.ID || info.Queue != task.Queue || task.ID == "" || info.Headers["k"] != "v" || string(info.Payload) != "x" {
			t.Errorf("%s: %+v is enqueued as %+v, %v", name, task, info, err)
		}
	}
}

func TestTaskThatIsDoneBeforeItIsLookedUpWasEnqueued(t *testing.T) {
	t.Parallel()
	inspect := asynq.NewInspectorFromRedisClient(redistest.Start(t).Client(t))
	task := New("audit", nil, nil)
	info, err := task.sentTwice(inspect, asynq.ErrTaskIDConflict)
	if err != nil || info.ID != task.ID || info.Queue != "default" || info.Type != "audit" || info.State != asynq.TaskStateCompleted {
		t.Errorf("it is told to be %+v, %v", info, err)
	}
	for _, refusal := range []error{asynq.ErrDuplicateTask, redis.ErrClosed} {
		if _, err := task.sentTwice(inspect, refusal); !errors.Is(err, refusal) {
			t.Errorf("%v, which is about another task or none, becomes %v", refusal, err)
		}
	}
}

func TestAConflictOfAGivenIDIsOne(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	tasks, inspect := asynq.NewClientFromRedisClient(client), asynq.NewInspectorFromRedisClient(client)
	task := New("test", nil, nil, asynq.TaskID("mine"))
	if _, err := task.Enqueue(t.Context(), tasks, inspect); err != nil {
		t.Fatal(err)
	}
	if info, err := task.Enqueue(t.Context(), tasks, inspect); !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("the second one gives %+v, %v", info, err)
	}
	own := New("test", nil, nil)
	for range 2 { // as when it is sent again
		if info, err := own.Enqueue(t.Context(), tasks, inspect); err != nil || info.State != asynq.TaskStatePending {
			t.Errorf("one that nobody else can have enqueued gives %+v, %v", info, err)
		}
	}
}
