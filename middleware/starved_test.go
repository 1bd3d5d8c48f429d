package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// Under StrictPriority a queue starves while tasks are pending in a higher one. Its waiters keep their places meanwhile.
func TestAStarvedWaiterDelaysNoOtherTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(r *rig) {
		const each, flow = 10, 8
		lease := r.hold("order:1")
		ran := make(chan string, 2*each)
		var busy atomic.Bool
		busy.Store(true)
		cfg := asynq.Config{Concurrency: 2, StrictPriority: true, Queues: map[string]int{"high": 2, "low": 1}}
		r.serve(r.options(parkAlways()), cfg, func(ctx context.Context, task *asynq.Task) error {
			var p payload
			if err := json.Unmarshal(task.Payload(), &p); err != nil {
				return err
			}
			if p.Key == "order:1" {
				queue, _ := asynq.GetQueueName(ctx)
				ran <- queue
				return nil
			}
			time.Sleep(2 * time.Millisecond)
			if !busy.Load() {
				return nil
			}
			_, err := r.tasks.Enqueue(task, asynq.Queue("high"))
			return err
		})
		for _, queue := range []string{"low", "high"} {
			for n := range each {
				r.settled(r.enqueue(payload{Key: "order:1", N: n}, asynq.Queue(queue)), asynq.TaskStateRetry)
			}
		}
		for n := range flow {
			r.enqueue(payload{Key: fmt.Sprint("busy:", n)}, asynq.Queue("high"))
		}
		r.giveBack(lease)
		released := time.Now()
		var order []string
		for range each {
			order = append(order, receive(r.T, ran))
		}
		if took := time.Since(released); took > time.Second || slices.Contains(order, "low") {
			r.Errorf("the tasks of the busy queue needed %v, want half a second in all: %q", took, order)
		}
		busy.Store(false)
		released = time.Now()
		for range each {
			receive(r.T, ran)
		}
		if took := time.Since(released); took > time.Second {
			r.Errorf("once the higher queue was empty, the starved tasks needed %v, want at most 1s", took)
		}
	})
}
