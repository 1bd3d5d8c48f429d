package inspect_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
)

// A second wake would put the second waiter before the first, at the head of their queue.
func TestADepositionWakesTheFirstWaiterAlone(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"in their order": "w1", "after put-first": "w2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			began, proceed, parked := make(chan string, 10), make(chan struct{}), make(chan struct{}, 10)
			var woken atomic.Int32
			r.serve(attach.Options{
				Strategy: middleware.Requeue{},
				Observer: func(_ context.Context, e middleware.Event) {
					switch {
					case e.Kind == middleware.Parked:
						parked <- struct{}{}
					case e.Kind == middleware.Woke && e.Cause != middleware.ByTimer:
						woken.Add(1)
					}
				},
			}, func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				began <- id
				select {
				case <-ctx.Done():
				case <-proceed:
				}
				return context.Cause(ctx)
			})
			r.enqueue("k", "holder")
			<-began
			for _, id := range []string{"w1", "w2"} {
				r.enqueue("k", id)
				r.receive(parked)
			}
			if first == "w2" {
				queue, err := delayqueue.New(r.client, delayqueue.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer queue.Close()
				if err := queue.Inspector().PutFirst(t.Context(), "k", delayqueue.Task{Queue: "default", ID: "w2"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.inspect.Depose(t.Context(), "k", by(r.owner("k"))); err != nil {
				t.Fatal(err)
			}
			tasks := asynq.NewInspectorFromRedisClient(r.client)
			r.eventually("the holder is retried", func() bool {
				info, err := tasks.GetTaskInfo("default", "holder")
				return err == nil && info.State == asynq.TaskStateRetry
			})
			if id := <-began; id != first {
				t.Errorf("%s ran first, want %s", id, first)
			}
			if n := woken.Load(); n > 0 {
				t.Errorf("the run of the deposed task has woken %d tasks", n)
			}
			close(proceed)
			<-began
		})
	}
}
