package e2e_test

import (
	"context"
	"sync/atomic"
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
				Redis: inNamespace(worker.Redis{Cluster: cluster.Addrs()}), Queues: map[string]int{"audit": 3, "invoice": 1}, LockTTL: 2 * time.Second,
				Strategy: strategy, Lanes: 64,
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

// The slots of lanes move from node to node, one after another, at once or key by key, while tasks run and wait in them.
func TestReshardingOfLanesLosesNoTask(t *testing.T) {
	t.Parallel()
	const orders, each = 20, resharded
	cluster := redistest.StartCluster(t, 3)
	admit(t, cluster.Nodes()...)
	share(t, cluster.Client(t))
	client, db := named(t, cluster.Client(t)), redistest.Start(t).Client(t)
	var open atomic.Bool
	gate := make(chan struct{})
	w, producer := newWorker(t, worker.Config{
		Redis:  inNamespace(worker.Redis{Cluster: cluster.Addrs()}),
		Queues: map[string]int{"audit": 1}, Concurrency: 40, Strategy: middleware.Requeue{}, Lanes: 64,
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
	l, _ := lanes.New(64)
	waiting := func() (n int) {
		for lane := range 64 {
			n += int(client.ZCard(t.Context(), "asynq:{"+l.Queue("audit", lane)+"}:retry").Val())
		}
		return n
	}
	until(t, "all others are parked", func() bool { return waiting() == orders*(each-1) })
	open.Store(true)
	close(gate)

	done := func() bool { return db.HLen(t.Context(), "effects").Val() == orders*each }
	began, moves := time.Now(), 0
	for ; !done(); moves++ {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d tasks are done", db.HLen(t.Context(), "effects").Val(), orders*each)
		}
		slot := l.Slot(l.Of("order:" + string(rune('0'+moves%10))))
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
	drained(t, client, allOf(t, 64, "audit")...)
	nothingRemains(t, client)
}
