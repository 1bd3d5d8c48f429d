package delayqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/leaktest"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/internal/testing/redistest"
)

func TestMain(m *testing.M) { leaktest.Verify(m) }

// solo is a Redis of its own with a Queue on it.
type solo struct {
	*linetest.Solo

	queue     *delayqueue.Queue
	inspector *delayqueue.Inspector
}

func newSolo(t *testing.T) *solo {
	t.Helper()
	s := linetest.NewSolo(t)
	queue := (*delayqueue.Queue)(s.Engine)
	return &solo{s, queue, queue.Inspector()}
}

// Delayed adds a task that is not due for an hour.
func (r *solo) Delayed(id string, opts ...asynq.Option) delayqueue.Task {
	r.Helper()
	return delayqueue.Task(r.Solo.Delayed(id, opts...))
}

// Begin makes a task active, wherever it is.
func (r *solo) Begin(t delayqueue.Task) delayqueue.Task {
	r.Helper()
	return delayqueue.Task(r.Solo.Begin(line.Task(t)))
}

// Park makes a task active, if it is not, and parks it on a key. Its timer ends in an hour.
func (r *solo) Park(t delayqueue.Task, key string) line.Parked {
	r.Helper()
	return r.Solo.Park(line.Task(t), key)
}

// State returns asynq's state of a task.
func (r *solo) State(t delayqueue.Task) asynq.TaskState {
	r.Helper()
	return r.Solo.State(line.Task(t))
}

// Remove deletes a task, as when it is done.
func (r *solo) Remove(t delayqueue.Task) {
	r.Helper()
	r.Solo.Remove(line.Task(t))
}

func hash(t delayqueue.Task) string { return "asynq:{" + t.Queue + "}:t:" + t.ID }

// park parks a task, as package middleware does when the key of a task is held. Its timer ends in an hour.
func park(ctx context.Context, client redis.UniversalClient, queue *delayqueue.Queue, t delayqueue.Task, key string) {
	if err := linetest.Fetch(ctx, client, line.Task(t)); err != nil {
		panic(err)
	}
	opts := line.ParkOptions{RetryAfter: time.Hour}
	if _, err := (*line.Engine)(queue).Park(ctx, line.Task(t), key, opts); err != nil {
		panic(err)
	}
}

// receive waits for a value.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return redistest.Receive(t, c, linetest.Limit)
}
