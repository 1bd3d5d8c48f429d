package tasks

import (
	"context"
	"errors"
	"fmt"
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

const (
	wakesEach   = 12 // of each kind in a round
	waiterQueue = "waiter"
	otherQueue  = "other"
	wakeBound   = 45 * time.Second // more than a parked task's timer: it takes that when a wake-up was swallowed
)

// wakes measures how long after the release of its key a waiting task's handler starts, when a task of the same worker
// held it, and when one of another worker did, which has connections of its own, as another process would. Both have the
// defaults but for the TaskCheckInterval; attached, they are plain asynq servers that have locks attached.
func (p part) wakes(ctx context.Context) error {
	t := p.Table("wake", "railtoken, by the TaskCheckInterval and by which worker released the key")
	kinds := []struct {
		name  string
		start func(context.Context, Job) (stop func() error, err error)
	}{
		{"10ms, %s worker", eachQueue(10*time.Millisecond, startQueue)},
		{"50ms, %s worker", eachQueue(50*time.Millisecond, startQueue)},
		{"50ms, %s worker, attached", eachQueue(50*time.Millisecond, startAttached)},
	}
	return p.Each(ctx, len(kinds), func(_, i int) error {
		s := HandOffs(p.share(wakesEach))
		c := Contestant{Name: fmt.Sprintf(kinds[i].name, "any"), Locks: true, Start: kinds[i].start}
		got, err := p.run(ctx, c, s, Limits{wakeBound, retries}, nil)
		if err != nil {
			return err
		}
		for _, holders := range []struct{ who, queue string }{{"the same", waiterQueue}, {"another", otherQueue}} {
			row := fmt.Sprintf(kinds[i].name, holders.who)
			note(t.AddRow(row), got, c)
			addWakes(t, row, gaps(s, got, holders.queue))
		}
		return nil
	})
}

// addWakes adds the wake-ups of a round.
func addWakes(t *results.Table, row string, times []time.Duration) {
	slices.Sort(times)
	t.Add(row, "p50 ms", results.PercentileIn(time.Millisecond, times, 0.5))
	t.Add(row, "p95 ms", results.PercentileIn(time.Millisecond, times, 0.95))
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

// startServer starts a server for some queues, and returns what ends it.
type startServer func(ctx context.Context, job Job, queues map[string]int, interval time.Duration) (stop func() error, err error)

// eachQueue starts a server for each of two queues.
func eachQueue(interval time.Duration, start startServer) func(context.Context, Job) (stop func() error, err error) {
	return func(ctx context.Context, job Job) (func() error, error) {
		var stops []func() error
		stop := func() (err error) {
			for _, one := range stops {
				err = errors.Join(err, one())
			}
			return err
		}
		for _, queue := range []string{waiterQueue, otherQueue} {
			one, err := start(ctx, job, map[string]int{queue: 1}, interval)
			if err != nil {
				return nil, errors.Join(err, stop())
			}
			stops = append(stops, one)
		}
		return stop, nil
	}
}

// startQueue starts a worker.
func startQueue(ctx context.Context, job Job, queues map[string]int, interval time.Duration) (func() error, error) {
	return startRailtoken(ctx, job, worker.Config{Queues: queues, TaskCheckInterval: interval})
}

// startAttached starts a plain asynq server that has locks attached.
func startAttached(_ context.Context, job Job, queues map[string]int, interval time.Duration) (func() error, error) {
	cfg := asynq.Config{Concurrency: worker.DefaultConcurrency, Queues: queues, TaskCheckInterval: interval}
	start := func(client redis.UniversalClient, cfg asynq.Config, handler asynq.Handler) (func() error, error) {
		return workers.Attached(client, cfg, attach.Options{}, func(locks *attach.Attached) asynq.Handler {
			return locks.Lock(middleware.PayloadKeys(payload.keys))(handler)
		})
	}
	return startAsynq(job, cfg, start, func(ctx context.Context, _ *redis.Client, p payload) error {
		return job.Tally.Work(ctx, p.N)
	})
}
