package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// BenchmarkContended measures how much of its throughput bare asynq, without locks and with as many slots as there are keys, keeps
// when every task takes the lock of its key, in a worker with Concurrency 32 and the default strategy.
func BenchmarkContended(b *testing.B) {
	for _, s := range []struct {
		keys, tasks int
		work        time.Duration
	}{{1, 500, 5 * time.Millisecond}, {4, 1000, 20 * time.Millisecond}, {20, 2000, 5 * time.Millisecond}} {
		b.Run(fmt.Sprintf("%dkeys/%dtasks/%v", s.keys, s.tasks, s.work), func(b *testing.B) {
			var shares, runs []float64
			for b.Loop() {
				bare := makespan(b, s.keys, s.tasks, s.work, nil)
				var ran atomic.Int64
				ours := makespan(b, s.keys, s.tasks, s.work, &ran)
				shares = append(shares, float64(bare)/float64(ours))
				runs = append(runs, float64(ran.Load())/float64(s.tasks))
			}
			slices.Sort(shares)
			slices.Sort(runs)
			b.ReportMetric(shares[len(shares)/2], "share-of-bare")
			b.ReportMetric(shares[0], "least-share")
			b.ReportMetric(runs[len(runs)/2], "runs/task")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// makespan returns how long a server takes for the tasks, which are there before it starts. It takes locks when runs is not nil, and
// counts there how often a task was run.
func makespan(b *testing.B, keys, tasks int, work time.Duration, runs *atomic.Int64) time.Duration {
	b.Helper()
	server := redistest.Start(b)
	finished := make(chan time.Time, 1)
	var done atomic.Int64
	run := func(ctx context.Context, o order) error {
		timer := time.NewTimer(work)
		defer timer.Stop()
		<-timer.C
		if done.Add(1) == int64(tasks) {
			finished <- time.Now()
		}
		return nil
	}
	cfg := worker.Config{Redis: worker.Redis{Addr: server.Addr()}, Concurrency: 32}
	if runs != nil {
		cfg.Observer = func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Acquired || e.Kind == middleware.Ended {
				runs.Add(1)
			}
		}
	}
	w, producer := newWorker(b, cfg, run)
	order0 := rand.New(rand.NewPCG(1, 2)).Perm(tasks)
	for _, n := range order0 {
		if _, err := producer.Enqueue(b.Context(), "work", order{Order: fmt.Sprint("order:", n%keys)}); err != nil {
			b.Fatal(err)
		}
	}
	if runs == nil {
		bare := asynq.NewServer(asynq.RedisClientOpt{Addr: server.Addr()}, asynq.Config{
			Concurrency: keys, TaskCheckInterval: 50 * time.Millisecond, LogLevel: asynq.ErrorLevel,
		})
		mux := asynq.NewServeMux()
		mux.HandleFunc("work", func(ctx context.Context, t *asynq.Task) error {
			var o order
			if err := json.Unmarshal(t.Payload(), &o); err != nil {
				return err
			}
			return run(ctx, o)
		})
		began := time.Now()
		if err := bare.Start(mux); err != nil {
			b.Fatal(err)
		}
		end := <-finished
		bare.Shutdown()
		return end.Sub(began)
	}
	began := time.Now()
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	end := <-finished
	if err := w.Shutdown(); err != nil {
		b.Fatal(err)
	}
	return end.Sub(began)
}
