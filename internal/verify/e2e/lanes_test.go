package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// allOf returns queues in all lanes, and without.
func allOf(t *testing.T, n int, queues ...string) (all []string) {
	t.Helper()
	l, err := lanes.New(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range queues {
		all = append(all, l.Queues(queue)...)
	}
	return all
}

func TestTasksInLanesAreDoneOnceAndNobodyIsStranded(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]middleware.Strategy{
		"parked":                            middleware.Requeue{},
		"parked after a wait in their slot": middleware.Wait{Max: 20 * time.Millisecond}.Then(middleware.Requeue{}),
		"FIFO":                              middleware.Requeue{Order: middleware.FIFO},
		"StrictFIFO":                        middleware.Requeue{Order: middleware.StrictFIFO},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const orders, each = 20, clustered
			cluster := redistest.StartCluster(t, 3)
			admit(t, cluster.Nodes()...)
			share(t, cluster.Client(t))
			client, db := named(t, cluster.Client(t)), redistest.Start(t).Client(t)
			w, producer := newWorker(t, worker.Config{
				Redis: inNamespace(worker.Redis{Cluster: cluster.Addrs(), Lanes: 64}), Queues: map[string]int{"audit": 3, "invoice": 1}, LockTTL: 2 * time.Second,
				Strategy: strategy,
			}, func(ctx context.Context, o order) error { return effect(ctx, db, o, false) })
			enqueue(t, producer, "audit", orders, each, asynq.MaxRetry(20))
			enqueue(t, producer, "invoice", orders, each, asynq.MaxRetry(20))
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkEffects(t, db, 2*orders*each)
			drained(t, client, allOf(t, 64, "audit", "invoice")...)
			nothingRemains(t, client)
		})
	}
}
