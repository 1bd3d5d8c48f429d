package e2e_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/lanes"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The slots of a queue and of keys that tasks wait for move from node to node and back, at once or key by key, while
// parked tasks drain.
func TestReshardingWhileParkedTasksDrainLosesNone(t *testing.T) {
	t.Parallel()
	reshards(t, worker.Config{LockRedis: at(startShared(t))}, []string{"audit"}, func(client redis.UniversalClient, move int) int {
		name := "asynq:{audit}:pending"
		if move%4 == 3 {
			name = fmt.Sprintf("railtoken:waiters:{order:%d}", move/4%3)
		}
		return int(client.ClusterKeySlot(t.Context(), name).Val())
	})
}

// The slots of lanes move from node to node, one after another, at once or key by key, while tasks run and wait in them.
func TestReshardingOfLanesLosesNoTask(t *testing.T) {
	t.Parallel()
	l, _ := lanes.New(64)
	reshards(t, worker.Config{Redis: worker.Redis{Lanes: 64}}, l.Queues("audit"), func(_ redis.UniversalClient, move int) int {
		return l.Slot(l.Of(fmt.Sprint("order:", move%10)))
	})
}

// reshards moves slots of a Cluster while tasks of a few keys, which are parked in some queues, drain: slot returns which. A worker
// runs them with a configuration that says where their locks are.
func reshards(t *testing.T, cfg worker.Config, queues []string, slot func(client redis.UniversalClient, move int) int) {
	t.Helper()
	const orders, each = 20, resharded
	cluster := redistest.StartCluster(t, 3)
	admit(t, cluster.Nodes()...)
	share(t, cluster.Client(t))
	client, db := named(t, cluster.Client(t)), redistest.Start(t).Client(t)
	cfg.Redis, cfg.Queues = inNamespace(worker.Redis{Cluster: cluster.Addrs(), Lanes: cfg.Redis.Lanes}), map[string]int{"audit": 1}
	cfg.Concurrency, cfg.Strategy = 40, middleware.Requeue{}
	var open atomic.Bool
	gate := make(chan struct{})
	w, producer := newWorker(t, cfg, func(ctx context.Context, o order) error {
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
	until(t, "all others are parked", func() bool {
		parked := 0
		for _, queue := range queues {
			parked += int(client.ZCard(t.Context(), "asynq:{"+queue+"}:retry").Val())
		}
		return parked == orders*(each-1)
	})
	open.Store(true)
	close(gate)

	done := func() int64 { return db.HLen(t.Context(), "effects").Val() }
	began, moves := time.Now(), 0
	for ; done() < orders*each; moves++ {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d tasks are done", done(), orders*each)
		}
		// Round trips go on between two moves.
		next := min(done()+min(20, orders*each/40), orders*each)
		until(t, "something is done", func() bool { return done() >= next })
		from := slot(client, moves)
		move := cluster.BeginMove(t, from, cluster.Nodes()[nextOwner(t, cluster, from)])
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
	drained(t, client, queues...)
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
