package middleware_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// A producer that enqueues in order for a handler that knows none leaves nothing behind.
func TestATaskLeavesASequenceThatItsHandlerIgnores(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t).Client(t))
	ran := make(chan struct{}, 3)
	r.serve(r.options(middleware.Requeue{}), asynq.Config{}, func(context.Context, *asynq.Task) error {
		ran <- struct{}{}
		return nil
	})
	for range 3 {
		if _, err := (*line.Engine)(r.queue).EnqueueInOrder(t.Context(), "order:1", "test", []byte(`{"key":"order:1"}`), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		receive(t, ran)
	}
	r.until(limit, "the sequence is empty", func() bool {
		return r.client.Exists(t.Context(), "railtoken:sequence:{order:1}").Val() == 0
	})
}
