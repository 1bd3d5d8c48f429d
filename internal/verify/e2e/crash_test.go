package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/worker"
)

// taskNumber makes the names of tasks different.
var taskNumber atomic.Int64

// limit bounds every wait for an event.
const limit = 60 * time.Second

// until waits for a condition.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for began := time.Now(); !reached(); <-time.After(5 * time.Millisecond) {
		if time.Since(began) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// enqueue adds a task for each order.
func enqueue(t *testing.T, client *worker.Client, queue string, orders, each int, opts ...asynq.Option) {
	t.Helper()
	for i := range each {
		for n := range orders {
			o := order{Order: "order:" + strconv.Itoa(n), Task: fmt.Sprintf("%s/%d/%d/%d", queue, n, i, taskNumber.Add(1))}
			if _, err := client.Enqueue(t.Context(), "work", o, append([]asynq.Option{asynq.Queue(queue), asynq.MaxRetry(5)}, opts...)...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkEffects waits until there are want effects, each of them once, and checks that nothing went wrong on the way.
func checkEffects(t *testing.T, db *redis.Client, want int) {
	t.Helper()
	until(t, fmt.Sprintf("%d effects", want), func() bool { return db.HLen(t.Context(), "effects").Val() >= int64(want) })
	for task, n := range db.HGetAll(t.Context(), "effects").Val() {
		if n != "1" {
			t.Errorf("the effect of %s is there %s times", task, n)
		}
	}
	sum := 0
	for _, revision := range db.HVals(t.Context(), "revisions").Val() {
		n, err := strconv.Atoi(revision)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != want {
		t.Errorf("the orders were revised %d times by %d tasks: updates are lost or doubled", sum, want)
	}
	if n := db.Get(t.Context(), "overlaps").Val(); n != "" {
		t.Errorf("%s overlaps", n)
	}
}

// drained waits until asynq has nothing left in its queues.
func drained(t *testing.T, client redis.UniversalClient, queues ...string) {
	t.Helper()
	inspect := asynq.NewInspectorFromRedisClient(client)
	known, err := inspect.Queues()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range queues {
		if !slices.Contains(known, queue) {
			continue // it was never used
		}
		var info *asynq.QueueInfo
		until(t, "queue "+queue+" empty", func() bool {
			var err error
			info, err = inspect.GetQueueInfo(queue)
			return err == nil && info.Size == info.Archived
		})
		if info.Archived > 0 {
			archived, _ := inspect.ListArchivedTasks(queue)
			for _, task := range archived {
				t.Errorf("queue %s: task %s is in the archive: %s", queue, task.Payload, task.LastErr)
			}
		}
	}
}

// ageLeases lets asynq recover at once what dead workers had in hand, and not 60 to 120 s later. It returns how many tasks. No
// worker may live whose leases would be aged too.
func ageLeases(t *testing.T, client redis.UniversalClient, queues []string) (aged int) {
	t.Helper()
	for _, queue := range queues {
		lease := "asynq:{" + queue + "}:lease"
		for _, id := range client.ZRange(t.Context(), lease, 0, -1).Val() {
			client.ZAdd(t.Context(), lease, redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: id})
			aged++
		}
	}
	return aged
}

func TestAKilledWorkerLosesNothingAndItsKeysBecomeFree(t *testing.T) {
	t.Parallel()
	const orders, ttl = 4, 2 * time.Second
	server, dbServer := redistest.Start(t), redistest.Start(t)
	client, db := server.Client(t), dbServer.Client(t)
	producer, err := worker.NewClient(worker.Redis{Addr: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	env := []string{"RAILTOKEN_QUEUES=audit,allocate", "RAILTOKEN_CONCURRENCY=12", "RAILTOKEN_LOCK_TTL=2s"}

	victim := startChild(t, server.Addr(), dbServer.Addr(), true, env...)
	enqueue(t, producer, "audit", orders, 1)
	until(t, "every order is locked", func() bool { return db.LLen(t.Context(), "started").Val() == orders })
	enqueue(t, producer, "allocate", orders, 2)
	until(t, "the others are parked", func() bool { return client.ZCard(t.Context(), "asynq:{allocate}:retry").Val() == 2*orders })
	victim.kill()
	killed := time.Now()

	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range orders {
		until(t, "the key is free", func() bool {
			lease, err := locker.Acquire(t.Context(), []string{"order:" + strconv.Itoa(n)}, locking.Options{})
			return err == nil && lease.Release(context.Background()) == nil
		})
	}
	if took := time.Since(killed); took > ttl+time.Second {
		t.Errorf("the keys were free after %v, want at most TTL + 1s", took)
	} else {
		t.Logf("the keys were free after %v (TTL %v)", took, ttl)
	}

	// asynq recovers a task when its own lease of 30 s has been over for 30 s. Instead of a minute, the leases are aged.
	ageLeases(t, client, []string{"audit"})
	startChild(t, server.Addr(), dbServer.Addr(), false, env...)
	checkEffects(t, db, 3*orders)
	drained(t, client, "audit", "allocate")
	if n := client.Exists(t.Context(), "railtoken:waiters:{order:0}").Val(); n != 0 {
		t.Error("an order still has waiters")
	}
}
