package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// asynq does not call the handler of a task whose deadline has passed: it retries it, for days, until it archives it.
func TestATaskWhoseDeadlineHasPassedInLineHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, inOrder := range map[string]middleware.Order{"best effort": middleware.BestEffort, "FIFO": middleware.FIFO, "strict FIFO": middleware.StrictFIFO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startShared(t)
			began, end, last := make(chan struct{}), make(chan struct{}), make(chan struct{})
			w, producer := newWorker(t, worker.Config{
				Redis: at(server), Strategy: middleware.Requeue{Order: inOrder}, LockTTL: 2 * time.Second,
				RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
			}, func(_ context.Context, o order) error {
				switch o.Task {
				case "holder":
					close(began)
					<-end
				case "last":
					close(last)
				}
				return nil
			})
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			put := func(task string, opts ...asynq.Option) {
				if _, err := producer.EnqueueInOrder(t.Context(), "k", "work", order{Order: "k", Task: task}, append(opts, asynq.TaskID(task))...); err != nil {
					t.Fatal(err)
				}
			}
			put("holder")
			<-began
			deadline := time.Now().Add(3 * time.Second)
			put("late", asynq.Deadline(deadline))
			put("last")
			client := named(t, server.Client(t))
			until(t, "both are parked", func() bool { return client.ZCard(t.Context(), "asynq:{default}:retry").Val() == 2 })
			until(t, "the deadline has passed", func() bool { return time.Now().After(deadline) })
			close(end)
			select {
			case <-last:
			case <-time.After(20 * time.Second):
				t.Fatal("the task behind one that asynq will not run was not run within 20 s")
			}
		})
	}
}
