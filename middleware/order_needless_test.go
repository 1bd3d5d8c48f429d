package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// A producer that enqueues in order for a handler that knows none leaves nothing behind.
func TestATaskLeavesALineThatItsHandlerDoesNotHeed(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	ran := make(chan struct{}, 3)
	r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})
	for range 3 {
		if _, err := r.queue.Enqueue(t.Context(), "order:1", "test", []byte(`{"key":"order:1"}`), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		receive(t, ran)
	}
	r.until(limit, "the line is empty", func() bool {
		return r.client.Exists(t.Context(), "railtoken:line:{order:1}").Val() == 0
	})
}

// On its last attempt a task that is refused is moved: a copy of it runs, and the task itself is in line.
func TestAMovedTaskLeavesALineThatItsHandlerDoesNotHeed(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	lease := r.hold("order:1")
	cfg := asynq.Config{Queues: map[string]int{"default": 1, "default:delayed": 1}}
	r.serve(r.options(middleware.Requeue{Delay: time.Second}), cfg, func(context.Context, *asynq.Task) error { return nil })
	info, err := r.queue.Enqueue(t.Context(), "order:1", "test", []byte(`{"key":"order:1"}`), nil, asynq.MaxRetry(0))
	if err != nil {
		t.Fatal(err)
	}
	r.gone(delayqueue.Task{Queue: "default", ID: info.ID})
	r.giveBack(lease)
	r.gone(delayqueue.Task{Queue: "default:delayed", ID: info.ID})
	r.leftNothing("order:1")
}
