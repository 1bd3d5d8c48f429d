package e2e_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// An outage that is longer than asynq's lease on a task, when outageLength is: tasks that have only waited, in the retry set or in their slots, use no retry.
func TestTasksThatOnlyWaitOutliveAnOutage(t *testing.T) {
	t.Parallel()
	const each = 20
	for name, outage := range map[string]struct {
		begin func(s *redistest.Server)
		end   func(t *testing.T, s *redistest.Server)
	}{
		"Redis is killed":  {(*redistest.Server).Kill, func(t *testing.T, s *redistest.Server) { s.Restart(t) }},
		"Redis is stopped": {(*redistest.Server).Pause, func(_ *testing.T, s *redistest.Server) { s.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startShared(t, "--appendonly", "yes", "--appendfsync", "always")
			client, db := named(t, server.Client(t)), redistest.Start(t).Client(t)
			held := "railtoken:lock:{order:0}" // by a program that does not renew it, and does not crash
			if err := client.Set(t.Context(), held, "foreign", 0).Err(); err != nil {
				t.Fatal(err)
			}
			queues, log := []string{"parked", "slots"}, &lines{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			defer logIfFailed(t, client, db, log, queues, "order:0")
			for _, queue := range queues {
				cfg := worker.Config{
					Redis: at(server), Queues: map[string]int{queue: 1}, LockTTL: 2 * time.Second,
					Logger: logger.With("worker", queue),
				}
				if queue == "slots" {
					cfg.Strategy = middleware.Wait{Max: time.Hour}
				}
				cfg.Concurrency, cfg.SlotBudget = each, each
				w, producer := newWorker(t, cfg, func(ctx context.Context, o order) error { return effect(ctx, db, o, false) })
				enqueue(t, producer, queue, 1, each, asynq.MaxRetry(0)) // their first attempt is their last
				enqueue(t, producer, queue, 1, each)
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			inspect := asynq.NewInspectorFromRedisClient(client)
			for _, queue := range queues {
				until(t, "all of the queue "+queue+" wait", func() bool {
					info, err := inspect.GetQueueInfo(queue)
					return err == nil && info.Size == 2*each && (queue == "slots" && info.Active == each || info.Retry == 2*each)
				})
			}

			outage.begin(server)
			<-time.After(outageLength)
			outage.end(t, server)
			until(t, "the key is given back", func() bool { return client.Del(t.Context(), held).Err() == nil })
			back := time.Now()
			checkEffects(t, db, 2*2*each)
			took := time.Since(back)
			drained(t, client, queues...)
			for _, queue := range queues {
				if info, err := inspect.GetQueueInfo(queue); err != nil || info.FailedTotal > 0 {
					t.Errorf("asynq counts %d failures, %v", info.FailedTotal, err)
				}
			}
			t.Logf("after %v without Redis all %d tasks have run within %.1f s", outageLength, 4*each, took.Seconds())
		})
	}
}
