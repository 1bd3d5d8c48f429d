package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// Such a task ends without ever naming its key. Those behind it in the sequence must not wait for their timers.
func TestATaskWithoutAKeyHoldsUpNoOtherInOrder(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string]struct{ kind, payload string }{
		"undecodable":     {"work", `"not an order"`},
		"without a key":   {"work", `{"id":""}`},
		"of unknown type": {"unheard of", `{"id":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, m := virtual(t, Config{Strategy: middleware.Requeue{Order: middleware.FIFO}, Queues: map[string]int{"default": 1, "late": 1}})
				inspect := asynq.NewInspectorFromRedisClient(w.tasks)
				ran := make(chan time.Time, 2)
				err := Handle(w, "work", Handler[map[string]string]{
					Keys: func(o map[string]string) []string {
						if o["id"] == "" {
							return nil
						}
						return []string{"order:" + o["id"]}
					},
					Run: func(context.Context, map[string]string) error {
						ran <- time.Now()
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				start(t, w)
				producer, err := delayqueue.New(redistest.VirtualClient(t, m), delayqueue.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = producer.Close() })
				enqueue := func(kind, payload, queue string) {
					t.Helper()
					if _, err := (*line.Engine)(producer).EnqueueInOrder(t.Context(), "order:1", kind, []byte(payload), nil, asynq.Queue(queue), asynq.MaxRetry(3)); err != nil {
						t.Fatal(err)
					}
				}
				if err := inspect.PauseQueue("late"); err != nil {
					t.Fatal(err)
				}
				enqueue("work", `{"id":"1"}`, "default")
				enqueue(poison.kind, poison.payload, "late")
				enqueue("work", `{"id":"1"}`, "default")
				<-ran
				<-time.After(time.Second)
				if err := inspect.UnpauseQueue("late"); err != nil { // now the task without a key is the first
					t.Fatal(err)
				}
				began := time.Now()
				if took := (<-ran).Sub(began); took > 2*time.Second {
					t.Errorf("the one behind it ran %v later", took)
				}
			})
		})
	}
}
