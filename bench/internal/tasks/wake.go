package tasks

import (
	"context"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/bench/internal/results"
	"github.com/railtoken/railtoken/bench/internal/workers"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// The queues of [HandOffs]: that of the waiters and of half of the holders, and that of the others. Each has a worker.
const (
	waiterQueue = "waiter"
	otherQueue  = "other"
)

// eachQueue are railtoken with a worker for each queue, which has connections of its own, as another process would. They
// have the defaults but for the TaskCheckInterval; attached, they are plain asynq servers that have locks attached.
var eachQueue = []Contestant{
	{Name: "10ms", Locks: true, start: inEachQueue(10*time.Millisecond, startQueue)},
	{Name: "50ms", Locks: true, start: inEachQueue(50*time.Millisecond, startQueue)},
	{Name: "50ms, attached", Locks: true, start: inEachQueue(50*time.Millisecond, startAttached)},
}

// wakes measures how long after the release of its key a waiting task's handler starts. In [HandOffs], the holder was a
// task of the same worker, or of another one.
func (p part) wakes(ctx context.Context, t *results.Table, c Contestant, s Scenario, bound time.Duration) error {
	got, err := p.run(ctx, c, s, bound, nil)
	if err != nil {
		return err
	}
	note(t.Row(c.Name), got, c)
	for _, holders := range []struct{ queue, who string }{{DefaultQueue, ""}, {waiterQueue, "same worker "}, {otherQueue, "another worker "}} {
		if times := gaps(s, got, holders.queue); len(times) > 0 {
			slices.Sort(times)
			t.Add(c.Name, holders.who+"p50 ms", results.PercentileIn(time.Millisecond, times, 0.5))
			t.Add(c.Name, holders.who+"p95 ms", results.PercentileIn(time.Millisecond, times, 0.95))
		}
	}
	return nil
}

// gaps returns the times from the end of each holder in a queue to the start of its waiter. The first half of the tasks
// holds. A waiter that was not done counts as if it began when the time was up.
func gaps(s Scenario, got Result, queue string) (all []time.Duration) {
	n := len(s.Tasks) / 2
	for i := range n {
		released, started := got.At[i], got.Began[n+i]
		if started == 0 {
			started = got.Took
		}
		if released > 0 && s.Tasks[i].Queue == queue {
			all = append(all, started-released)
		}
	}
	return all
}

// queueStart starts a server for a queue, and returns what ends it.
type queueStart func(ctx context.Context, job Job, queues map[string]int, interval time.Duration) (stop func() error, err error)

// inEachQueue starts a server for each of two queues.
func inEachQueue(interval time.Duration, begin queueStart) start {
	return func(ctx context.Context, job Job) (func() error, error) {
		return workers.All(2, func(i int) (func() error, error) {
			return begin(ctx, job, map[string]int{[]string{waiterQueue, otherQueue}[i]: 1}, interval)
		})
	}
}

// startQueue starts a worker.
func startQueue(ctx context.Context, job Job, queues map[string]int, interval time.Duration) (func() error, error) {
	return startRailtoken(ctx, job, worker.Config{Queues: queues, TaskCheckInterval: interval})
}

// startAttached starts a plain asynq server that has locks attached.
func startAttached(_ context.Context, job Job, queues map[string]int, interval time.Duration) (func() error, error) {
	cfg := asynq.Config{Concurrency: worker.DefaultConcurrency, Queues: queues, TaskCheckInterval: interval}
	return startAsynq(job, cfg, func(client redis.UniversalClient, cfg asynq.Config, handler asynq.Handler) (func() error, error) {
		return workers.Attached(client, cfg, attach.Options{}, func(locks *attach.Attached) asynq.Handler {
			return locks.Lock(middleware.PayloadKeys(payload.keys))(handler)
		})
	}, nil)
}
