package attach_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

// Orders in lanes are processed by a server that names the queues without their lanes: each once, and no two tasks of an
// order at the same time.
func TestTasksOfLanesRun(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	const n, tasks = 40, 200
	producer, err := attach.NewProducer(client, attach.ProducerOptions{Lanes: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	a, err := attach.New(client, asynq.Config{Concurrency: 8, Queues: map[string]int{"orders": 6, "audit": 3}}, attach.Options{Lanes: 64})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := lanes.New(64)
	var mu sync.Mutex
	runs, running := map[string]int{}, map[string]bool{}
	var left atomic.Int64
	left.Store(tasks)
	done := make(chan struct{})
	handler := a.Lock(func(_ context.Context, task *asynq.Task) ([]string, error) { return []string{string(task.Payload())}, nil })(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		order, id := string(task.Payload()), ""
		id, _ = asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		if lane, ok := l.In(queue); !ok || lane != l.Of(order) {
			t.Errorf("order %s is in the queue %s, not in lane %d", order, queue, l.Of(order))
		}
		mu.Lock()
		if running[order] {
			t.Errorf("two tasks of %s run at the same time", order)
		}
		running[order] = true
		runs[id]++
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		running[order] = false
		mu.Unlock()
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	}))
	for i := range tasks {
		order, queue := fmt.Sprint("order:", i%n), []string{"orders", "audit"}[i%2]
		if _, err := producer.EnqueueContext(t.Context(), asynq.NewTask("test", []byte(order), asynq.Queue(queue)), attach.Keys(order)); err != nil {
			t.Fatal(err)
		}
	}
	server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := server.Start(handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown(); _ = a.Close() })
	redistest.Receive(t, done, 60*time.Second)
	mu.Lock()
	defer mu.Unlock()
	for id, times := range runs {
		if times != 1 {
			t.Errorf("task %s ran %d times", id, times)
		}
	}
	if got := client.Get(t.Context(), "railtoken:lanes").Val(); got != "64" {
		t.Errorf("the record of the lanes is %q", got)
	}
}

func TestLanesMustBeTheSame(t *testing.T) {
	t.Parallel()
	_ = redis.Nil
}
