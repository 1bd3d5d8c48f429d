package middleware_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// A task of many keys wakes for each of them. When Redis does not answer, its slot must not be held for that many timeouts.
func TestTheWakesOfManyKeysTogetherHoldASlotNoLongerThanOne(t *testing.T) {
	t.Parallel()
	const keys = 6
	server := redistest.Start(t)
	r := newRig(t, server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
	opts := r.options(middleware.Requeue{OnDeck: -1})
	opts.Key = func(_ context.Context, task *asynq.Task) (found []string, err error) {
		err = json.Unmarshal(task.Payload(), &found)
		return found, err
	}
	lock, err := middleware.Lock(opts)
	if err != nil {
		t.Fatal(err)
	}
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
	handler := lock(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "holder" {
			close(began)
			<-end
		}
		return nil
	}))
	asynqServer := asynq.NewServerFromRedisClient(r.client, asynq.Config{
		Concurrency: keys + 1, TaskCheckInterval: 10 * time.Millisecond, Logger: quiet{}, ShutdownTimeout: time.Second,
		IsFailure: middleware.IsFailure(nil), RetryDelayFunc: middleware.RetryDelay(nil),
	})
	err = asynqServer.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if task.Type() == "holder" {
			defer func() { ended <- time.Now() }()
		}
		return handler.ProcessTask(ctx, task)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(asynqServer.Shutdown)
	t.Cleanup(server.Resume)
	put := func(kind string, keys ...string) {
		payload, _ := json.Marshal(keys)
		if _, err := r.tasks.Enqueue(asynq.NewTask(kind, payload)); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"a", "b", "c", "d", "e", "f"}
	put("holder", all...)
	receive(t, began)
	for _, key := range all {
		put("waiter", key)
	}
	r.until(time.Minute, "all are parked", func() bool { return r.client.ZCard(t.Context(), "asynq:{default}:retry").Val() == keys })
	server.Pause()
	returned := time.Now()
	close(end)
	if took := receive(t, ended).Sub(returned); took > 12*time.Second {
		t.Errorf("the slot was held for %v after the handler", took)
	}
}
