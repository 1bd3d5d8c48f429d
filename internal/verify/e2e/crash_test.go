package e2e_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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
	drainedIn(t, client, limit, queues...)
}

// drainedIn is the same with a limit of its own for each queue.
func drainedIn(t *testing.T, client redis.UniversalClient, limit time.Duration, queues ...string) {
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
		within(t, limit, "queue "+queue+" empty", func() bool {
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
