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
	worked("10ms", 10*time.Millisecond), worked("50ms", 50*time.Millisecond),
	{Name: "50ms, attached", start: inEachQueue(func(_ context.Context, job Job) (func() error, error) {
		return startAsynq(job, asynq.Config{Concurrency: worker.DefaultConcurrency}, attached, nil)
	})},
}

func worked(name string, interval time.Duration) Contestant {
	return Contestant{Name: name, start: inEachQueue(func(ctx context.Context, job Job) (func() error, error) {
		return startRailtoken(ctx, job, worker.Config{TaskCheckInterval: interval})
	})}
}

// inEachQueue starts a server for each queue.
func inEachQueue(begin start) start {
	return func(ctx context.Context, job Job) (func() error, error) {
		return workers.All(2, func(i int) (func() error, error) {
			one := job
			one.Scenario.Tasks = slices.DeleteFunc(slices.Clone(job.Scenario.Tasks), func(t Task) bool {
				return t.Queue != []string{waiterQueue, otherQueue}[i]
			})
			return begin(ctx, one)
		})
	}
}

// attached starts a plain asynq server that has locks attached.
func attached(client redis.UniversalClient, cfg asynq.Config, handler asynq.Handler) (func() error, error) {
	return workers.Attached(client, cfg, attach.Options{}, func(locks *attach.Attached) asynq.Handler {
		return locks.Lock(middleware.PayloadKeys(payload.keys))(handler)
	})
}

// wakes measures how long after the release of its key a waiting task's handler starts. In [HandOffs], the holder was a
// task of the same worker, or of another one.
func (p part) wakes(ctx context.Context, t *results.Table, c Contestant) error {
	got, err := p.run(ctx, c, p.Scenario, wakeBound, nil)
	if err != nil {
		return err
	}
	note(t.Row(c.Name), got, c)
	who := map[string]string{waiterQueue: "same worker ", otherQueue: "another worker "}
	for _, queue := range []string{DefaultQueue, waiterQueue, otherQueue} {
		if times := gaps(p.Scenario, got, queue); len(times) > 0 {
			slices.Sort(times)
			t.Add(c.Name, who[queue]+"p50 ms", results.PercentileIn(time.Millisecond, times, 0.5))
			t.Add(c.Name, who[queue]+"p95 ms", results.PercentileIn(time.Millisecond, times, 0.95))
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
