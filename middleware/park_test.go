package middleware_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// The locks are elsewhere, and the first task of the sequence leaves between the refusal of a task and the look after
// its park.
func TestALookAfterAParkLeavesThePosition(t *testing.T) {
	t.Parallel()
	for name, queue := range map[string]string{"in its queue": "", "in another queue": "waiting"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.Start(t).Client(t))
			r.hold("order:1")
			first := r.enqueue(payload{Key: "order:1"}, asynq.Queue("elsewhere"))
			if _, err := (*line.Engine)(r.queue).Join(t.Context(), line.Task(first), "order:1", line.JoinOptions{}); err != nil {
				t.Fatal(err)
			}
			opts := r.options(middleware.Requeue{Delay: time.Hour, Order: middleware.FIFO, Queue: queue})
			opts.RedisKeys = nil
			r.events.during = func(ctx context.Context, e middleware.Event) {
				if parked(e) {
					if _, err := (*line.Engine)(r.queue).Remove(ctx, line.Task(first), "order:1"); err != nil {
						t.Error(err)
					}
				}
			}
			server := r.serve(opts, asynq.Config{}, func(context.Context, *asynq.Task) error { return nil })
			r.enqueue(payload{Key: "order:1"})
			task := r.events.await(t, 1, parked)[0].Task
			server.Shutdown() // the look is over
			var members []string
			for _, z := range r.client.ZRangeWithScores(context.Background(), "railtoken:sequence:{order:1}", 0, -1).Val() {
				if int64(z.Score*2)%2 != 0 {
					t.Error("the task counts as one that has begun to work")
				}
				members = append(members, z.Member.(string))
			}
			if want := []string{"7:default" + task.ID}; queue == "" && !slices.Equal(members, want) {
				t.Errorf("the sequence is %q, want %q", members, want)
			}
			if want := []string{"7:waiting" + task.ID}; queue != "" && !slices.Equal(members, want) {
				t.Errorf("the sequence is %q, want %q", members, want)
			}
		})
	}
}
