package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
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
			admit(t, cluster.Nodes()...)
			share(t, cluster.Client(t))
			client, db := named(t, cluster.Client(t)), redistest.Start(t).Client(t)
			// The tasks of one key are on different servers, and its lock may be on a third.
			on := func(queue string) int {
				return int(client.ClusterKeySlot(t.Context(), "asynq:{"+queue+"}:pending").Val()) * 3 / 16384
			}
			if a, b := on("audit"), on("invoice"); a == b {
				t.Fatalf("both queues are on server %d: this shows nothing", a)
			}
			w, producer := newWorker(t, worker.Config{
				Redis: inNamespace(worker.Redis{Cluster: cluster.Addrs()}), Queues: map[string]int{"audit": 1, "invoice": 1}, LockTTL: 2 * time.Second,
				Strategy: c.strategy,
			}, func(ctx context.Context, o order) error { return effect(ctx, db, o, false) })
			enqueue(t, producer, "audit", orders, each, asynq.MaxRetry(c.retries))
			enqueue(t, producer, "invoice", orders, each, asynq.MaxRetry(c.retries))
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkEffects(t, db, 2*orders*each)
			drained(t, client, "audit", "invoice")
			removeEntriesOfGoneTasks(t, client, w.Queue())
			nothingRemains(t, client)
		})
	}
}

// removeEntriesOfGoneTasks wakes the keys that still have waiters, though all tasks are done. On a Cluster, a task that
// its timer brings back while it is being parked may leave its entry behind (docs/design.md, 5.5). A wake removes it and
// wakes no task.
func removeEntriesOfGoneTasks(t *testing.T, client redis.UniversalClient, queue *delayqueue.Queue) {
	t.Helper()
	for _, name := range remains(t, client) {
		key, ok := strings.CutPrefix(name, "railtoken:waiters:{")
		if !ok {
			continue
		}
		t.Log("an entry of a task that is done: ", name)
		woken, err := queue.Wake(t.Context(), strings.TrimSuffix(key, "}"), delayqueue.WakeOptions{})
		if err != nil || len(woken.Tasks) > 0 || woken.Pending {
			t.Errorf("%s: a wake found %+v, %v", name, woken, err)
		}
	}
}
