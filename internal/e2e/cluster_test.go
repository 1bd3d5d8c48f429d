package e2e_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

func TestTasksOnAClusterAreDoneOnceAndNobodyIsStranded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strategy middleware.Strategy
		retries  int
	}{
		"parked":                            {nil, 20},
		"parked on their last attempt":      {nil, 0},
		"parked after a wait in their slot": {middleware.Wait{Max: 20 * time.Millisecond}.Then(middleware.Requeue{}), 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const orders, each = 20, clustered
			cluster := redistest.StartCluster(t, 3)
			client, db := cluster.Client(t), redistest.Start(t).Client(t)
			// The tasks of one key are on different servers, and its lock may be on a third.
			on := func(queue string) int {
				return int(client.ClusterKeySlot(t.Context(), "asynq:{"+queue+"}:pending").Val()) * 3 / 16384
			}
			if a, b := on("audit"), on("invoice"); a == b {
				t.Fatalf("both queues are on server %d: this shows nothing", a)
			}
			w, producer := newWorker(t, worker.Config{
				Redis: worker.Redis{Cluster: cluster.Addrs()}, Queues: map[string]int{"audit": 1, "invoice": 1}, LockTTL: 2 * time.Second,
				Strategy: c.strategy,
			}, func(ctx context.Context, o order) error { return effect(ctx, db, o, false) })
			enqueue(t, producer, "audit", orders, each, asynq.MaxRetry(c.retries))
			enqueue(t, producer, "invoice", orders, each, asynq.MaxRetry(c.retries))
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkEffects(t, db, 2*orders*each)
			drained(t, client, "audit", "invoice")
			// On a Cluster, a task that its timer brings back while it is being parked may leave its entry behind. The next wake
			// of the key finds that the task is gone.
			for key := range orders {
				if _, err := w.Queue().Wake(t.Context(), "order:"+strconv.Itoa(key), delayqueue.WakeOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			nothingRemains(t, client)
		})
	}
}
