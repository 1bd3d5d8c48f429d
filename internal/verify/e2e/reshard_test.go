package e2e_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The slots of a queue and of keys that tasks wait for move from node to node and back, at once or key by key, while
// parked tasks drain.
func TestReshardingWhileParkedTasksDrainLosesNone(t *testing.T) {
	t.Parallel()
	const orders, each = 20, resharded
	cluster := redistest.StartCluster(t, 3)
	admit(t, cluster.Nodes()...)
	share(t, cluster.Client(t))
	client, db := named(t, cluster.Client(t)), redistest.Start(t).Client(t)
	var open atomic.Bool
	gate := make(chan struct{})
	w, producer := newWorker(t, worker.Config{
		Redis: inNamespace(worker.Redis{Cluster: cluster.Addrs()}), LockRedis: at(startShared(t)),
		Queues: map[string]int{"audit": 1}, Concurrency: 40, Strategy: middleware.Requeue{},
	}, func(ctx context.Context, o order) error {
		if !open.Load() {
			<-gate
		}
		<-time.After(2 * time.Second / each) // several slots move before the last task runs
		if err := db.HIncrBy(ctx, "runs", o.Task, 1).Err(); err != nil {
			return err
		}
		return effect(ctx, db, o, false)
	})
	enqueue(t, producer, "audit", orders, each, asynq.MaxRetry(20))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "all others are parked", func() bool { return client.ZCard(t.Context(), "asynq:{audit}:retry").Val() == orders*(each-1) })
	open.Store(true)
	close(gate)

	done := func() bool { return db.HLen(t.Context(), "effects").Val() == orders*each }
	names := []string{"asynq:{audit}:pending"}
	for n := range 3 {
		names = append(names, fmt.Sprintf("railtoken:waiters:{order:%d}", n))
	}
	began, moves := time.Now(), 0
	for ; !done(); moves++ {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d tasks are done", db.HLen(t.Context(), "effects").Val(), orders*each)
		}
		name := names[0]
		if moves%4 == 3 {
			name = names[1+moves/4%3]
		}
		slot := int(client.ClusterKeySlot(t.Context(), name).Val())
		// Round trips of the queue go on between two moves.
		before := db.HLen(t.Context(), "effects").Val()
		until(t, "something is done", func() bool {
			return db.HLen(t.Context(), "effects").Val() >= min(before+min(20, orders*each/40), orders*each)
		})
		move := cluster.BeginMove(t, slot, cluster.Nodes()[nextOwner(t, cluster, slot)])
		if moves%2 == 1 { // slowly
			for range 10 {
				move.Some(t, 50)
				<-time.After(20 * time.Millisecond)
			}
		}
		move.Finish(t)
	}
	t.Logf("%d moves in %v", moves, time.Since(began))
	checkEffects(t, db, orders*each)
	for task, n := range db.HGetAll(t.Context(), "runs").Val() {
		if n != "1" {
			t.Errorf("%s ran %s times", task, n)
		}
	}
	drained(t, client, "audit")
	nothingRemains(t, client)
}

// nextOwner returns the number of the node after the one that has a slot.
func nextOwner(t *testing.T, cluster *redistest.Cluster, slot int) int {
	t.Helper()
	ranges, err := cluster.Nodes()[0].Client(t).ClusterSlots(t.Context()).Result() //nolint:staticcheck // Redis 6.2 has no CLUSTER SHARDS
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		for i, node := range cluster.Nodes() {
			if r.Start <= slot && slot <= r.End && r.Nodes[0].Addr == node.Addr() {
				return (i + 1) % len(cluster.Nodes())
			}
		}
	}
	t.Fatalf("no node has slot %d", slot)
	return 0
}
