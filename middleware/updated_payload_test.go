package middleware_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/testing/linetest"
	"github.com/railtoken/railtoken/locking"
)

// asynq's Inspector changes the payload of a scheduled task, and knows nothing of the keys that were recorded with it.
func TestATaskWaitsForAnOutdatedKeyOnce(t *testing.T) {
	t.Parallel()
	for name, wake := range map[string]func(r *rig, held *locking.Lease, task delayqueue.Task) (now *locking.Lease){
		"released": func(r *rig, held *locking.Lease, _ delayqueue.Task) *locking.Lease {
			r.giveBack(held)
			return nil
		},
		"still held": func(r *rig, held *locking.Lease, task delayqueue.Task) *locking.Lease { // by an operator
			if _, err := (*line.Engine)(r.queue).WakeTask(r.Context(), "order:old", line.Task(task)); err != nil {
				r.Fatal(err)
			}
			return held
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(r *rig) { waitForAnOutdatedKey(r, wake) })
		})
	}
}

func waitForAnOutdatedKey(r *rig, wake func(*rig, *locking.Lease, delayqueue.Task) *locking.Lease) {
	const relearn = 16 // correct records, after which tasks of a type come with their locks again
	ran := make(chan []string, relearn)
	r.serve(r.options(parkAlways()), asynq.Config{}, func(ctx context.Context, _ *asynq.Task) error {
		lease, _ := locking.FromContext(ctx)
		ran <- lease.Keys()
		return nil
	})
	p := r.producer(func(o *attach.ProducerOptions) { o.RedisKeys = r.locker.RedisKeys })
	others := func() {
		for n := range relearn {
			if _, err := p.EnqueueContext(context.Background(), taskFor(r, fmt.Sprint("other:", n))); err != nil {
				r.Fatal(err)
			}
			receive(r.T, ran)
		}
	}
	others()
	old, own := r.hold("order:old"), r.hold("order:own")
	info, err := p.EnqueueContext(context.Background(), taskFor(r, "order:old"), asynq.ProcessIn(10*time.Second))
	if err != nil {
		r.Fatal(err)
	}
	task := delayqueue.Task{Queue: info.Queue, ID: info.ID}
	if err := r.inspect.UpdateTaskPayload(task.Queue, task.ID, taskFor(r, "order:own").Payload()); err != nil {
		r.Fatal(err)
	}
	waits := func(key string) bool {
		return slices.Equal(linetest.Waiting(r.T, r.client, key), []string{task.ID})
	}
	linetest.Until(r.T, "it waits for the recorded key", func() bool { return waits("order:old") })
	if old = wake(r, old, task); old == nil {
		linetest.Until(r.T, "it waits for its own key", func() bool { return waits("order:own") })
		r.hold("order:old")
	}
	others()
	time.Sleep(2 * time.Minute) // its timer brings it back a few times
	if !waits("order:own") {
		r.Error("it does not wait for its own key")
	}
	released := time.Now()
	r.giveBack(own)
	if keys := receive(r.T, ran); !slices.Equal(keys, []string{"order:own"}) {
		r.Errorf("it ran under %q", keys)
	}
	if took := time.Since(released); took > soon {
		r.Errorf("it ran %v after the release of its key", took)
	}
	r.gone(task)
}
