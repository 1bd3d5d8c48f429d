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
	return soloOn(t, redistest.Start(t).Client(t))
}

func soloOn(t *testing.T, client *redis.Client) *solo {
	t.Helper()
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

// delayed adds a task that is not due for an hour.
func (r *solo) delayed(id string, opts ...asynq.Option) delayqueue.Task {
	r.Helper()
	info, err := r.tasks.Enqueue(asynq.NewTask("test", nil), append([]asynq.Option{asynq.TaskID(id), asynq.ProcessIn(time.Hour)}, opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	return delayqueue.Task{Queue: info.Queue, ID: info.ID}
}

// begin has a worker fetch a task, wherever it is.
func (r *solo) begin(t delayqueue.Task) delayqueue.Task {
	r.Helper()
	r.ok(fetch(r.Context(), r.client, t))
	return t
}

// park has a worker fetch a task, if none has, and then wait for a key. It would look for itself in an hour.
func (r *solo) park(t delayqueue.Task, key string) delayqueue.Parked {
	r.Helper()
	place, err := r.queue.Park(r.Context(), r.begin(t), key, delayqueue.ParkOptions{Look: time.Hour})
	r.ok(err)
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

// serve runs an asynq server until the end of the test. What its handlers refuse is tried again in an hour.
func (r *solo) serve(concurrency int, handler func(ctx context.Context, id string) error) {
	r.Helper()
	serve(r.T, r.queue, asynq.Config{Concurrency: concurrency}, handler)
}

// remove deletes a task, as when it is done.
func (r *solo) remove(t delayqueue.Task) {
	r.Helper()
	if err := r.inspect.DeleteTask(t.Queue, t.ID); err != nil {
		r.Fatal(err)
	}
}
