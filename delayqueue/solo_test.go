package delayqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
)

// solo is a Redis of its own with a Queue and asynq's own tools on it, for tests that look at all of it.
type solo struct {
	*testing.T
	client  *redis.Client
	queue   *delayqueue.Queue
	tasks   *asynq.Client
	inspect *asynq.Inspector
}

func newSolo(t *testing.T) *solo {
	t.Helper()
	client := redistest.Start(t).Client(t)
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	return &solo{
		T: t, client: client, queue: queue,
		tasks: asynq.NewClientFromRedisClient(client), inspect: asynq.NewInspectorFromRedisClient(client),
	}
}

// delayed adds a task that is not due for an hour: what a wake finds is the same as for a parked one.
func (r *solo) delayed(id string, opts ...asynq.Option) delayqueue.Task {
	r.Helper()
	info, err := r.tasks.Enqueue(asynq.NewTask("test", nil), append([]asynq.Option{asynq.TaskID(id), asynq.ProcessIn(time.Hour)}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// park puts a task in line.
func (r *solo) park(t delayqueue.Task, key string) delayqueue.Place {
	r.Helper()
	place, err := r.queue.Park(r.Context(), t, key, delayqueue.ParkOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return place
}

// wake wakes the next waiter.
func (r *solo) wake(key string) delayqueue.Woken {
	r.Helper()
	woken, err := r.queue.Wake(r.Context(), key, delayqueue.WakeOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return woken
}

// state returns asynq's state of a task.
func (r *solo) state(t delayqueue.Task) asynq.TaskState {
	r.Helper()
	info, err := r.inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatal(err)
	}
	return info.State
}

// become waits for a task to be in a state.
func (r *solo) become(t delayqueue.Task, want asynq.TaskState) {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-time.After(time.Millisecond) {
		if info, err := r.inspect.GetTaskInfo(t.Queue, t.ID); err == nil && info.State == want {
			return
		}
	}
	r.Fatalf("task %s did not become %v", t, want)
}

// until waits for something to be so.
func (r *solo) until(what string, so func() bool) {
	r.Helper()
	for began := time.Now(); time.Since(began) < limit; <-time.After(time.Millisecond) {
		if so() {
			return
		}
	}
	r.Fatalf("waited %v in vain until %s", limit, what)
}

// waiting returns the IDs of the tasks in line.
func (r *solo) waiting(key string) []string {
	r.Helper()
	waiters, err := r.queue.Waiters(r.Context(), key, 1000)
	if err != nil {
		r.Fatal(err)
	}
	ids := []string{}
	for _, w := range waiters {
		ids = append(ids, w.Task.ID)
	}
	return ids
}

// serve runs an asynq server until the end of the test. Its handlers' errors park the task for an hour.
func (r *solo) serve(concurrency int, handler func(ctx context.Context, id string) error) {
	r.Helper()
	server := asynq.NewServerFromRedisClient(r.client, asynq.Config{
		Concurrency: concurrency, TaskCheckInterval: 5 * time.Millisecond, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Millisecond,
		IsFailure:      func(error) bool { return false },
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return handler(ctx, id)
	}))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(server.Shutdown)
}

// headers returns the headers of a task.
func (r *solo) headers(t delayqueue.Task) map[string]string {
	r.Helper()
	info, err := r.inspect.GetTaskInfo(t.Queue, t.ID)
	if err != nil {
		r.Fatal(err)
	}
	return info.Headers
}

// remove deletes a task, as when it is done.
func (r *solo) remove(t delayqueue.Task) {
	r.Helper()
	if err := r.inspect.DeleteTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}

// move moves a task.
func (r *solo) move(from delayqueue.Task, headers map[string]string, retries int) delayqueue.Task {
	r.Helper()
	task := asynq.NewTaskWithHeaders("test", []byte("payload"), headers)
	copied, err := r.queue.Move(r.Context(), from, task, from.Queue+delayqueue.Suffix, time.Minute, retries)
	if err != nil {
		r.Fatal(err)
	}
	return copied
}

// claim asks whether a task may run.
func (r *solo) claim(t delayqueue.Task, headers map[string]string) bool {
	r.Helper()
	mine, err := r.queue.Claim(r.Context(), t, headers)
	if err != nil {
		r.Fatal(err)
	}
	return mine
}
