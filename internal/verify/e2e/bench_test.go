package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

// BenchmarkReleaseToStart measures how long after the release of its key a parked task starts: the fallback delay is 1 s, the
// release comes 100 ms after the task was parked, and an idle server looks each 50 ms.
func BenchmarkReleaseToStart(b *testing.B) {
	server := redistest.Start(b)
	client := server.Client(b)
	started := make(chan time.Time, 1)
	parked := make(chan struct{}, 1)
	cfg := worker.Config{
		Redis: worker.Redis{Addr: server.Addr()}, TaskCheckInterval: 50 * time.Millisecond, Strategy: middleware.Requeue{Delay: time.Second},
		Observer: func(_ context.Context, e middleware.Event) {
			if e.Kind == middleware.Ended {
				select {
				case parked <- struct{}{}:
				default:
				}
			}
		},
	}
	w, producer := newWorker(b, cfg, func(context.Context, order) error {
		started <- time.Now()
		return nil
	})
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	locker, err := locking.NewSingle(client, locking.SingleOptions{})
	if err != nil {
		b.Fatal(err)
	}
	queue, err := delayqueue.New(client, delayqueue.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = queue.Close() })
	var took []time.Duration
	for b.Loop() {
		lease, err := locker.Acquire(b.Context(), []string{"k"}, locking.Options{})
		if err != nil {
			b.Fatal(err)
		}
		select { // of the run before
		case <-parked:
		default:
		}
		if _, err := producer.Enqueue(b.Context(), "work", order{Order: "k"}); err != nil {
			b.Fatal(err)
		}
		<-parked
		<-time.After(100 * time.Millisecond)
		released := time.Now()
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		if _, err := queue.Wake(b.Context(), "k", delayqueue.WakeOptions{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-started).Sub(released))
		for { // until the handler's own lease is gone
			if lease, err := locker.Acquire(b.Context(), []string{"k"}, locking.Options{}); err == nil {
				_ = lease.Release(b.Context())
				break
			}
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*95/100]), "p95-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOtherKeysBesideAHotKey measures the throughput of tasks with keys of their own in a queue with Concurrency 10, as a
// share of what it is without 200 tasks that fight for one hot key. The hot key is held by somebody else ("held"), or its tasks run
// in this worker, where each takes its turn ("shared"; then one slot of ten works for the hot key, so that 0.9 is all there is
// while it does).
func BenchmarkOtherKeysBesideAHotKey(b *testing.B) {
	const hot, others, work = 200, 4000, 5 * time.Millisecond
	for _, held := range []bool{true, false} {
		b.Run(map[bool]string{true: "held", false: "shared"}[held], func(b *testing.B) {
			var ratios []float64
			for b.Loop() {
				alone := throughput(b, 0, others, work, held)
				beside := throughput(b, hot, others, work, held)
				ratios = append(ratios, beside/alone)
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
			b.ReportMetric(ratios[0], "min-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// throughput returns how many tasks with keys of their own are done in a second, beside hot ones.
func throughput(b *testing.B, hot, others int, work time.Duration, held bool) float64 {
	b.Helper()
	server := redistest.Start(b)
	client := server.Client(b)
	var done atomic.Int64
	finished := make(chan time.Time, 1)
	var first atomic.Int64
	cfg := worker.Config{Redis: worker.Redis{Addr: server.Addr()}, Concurrency: 10}
	w, producer := newWorker(b, cfg, func(ctx context.Context, o order) error {
		first.CompareAndSwap(0, time.Now().UnixNano())
		timer := time.NewTimer(work)
		defer timer.Stop()
		<-timer.C
		if o.Task == "other" && done.Add(1) == int64(others) {
			finished <- time.Now()
		}
		return nil
	})
	if held {
		locker, err := locking.NewSingle(client, locking.SingleOptions{})
		if err != nil {
			b.Fatal(err)
		}
		lease, err := locker.Acquire(b.Context(), []string{"hot"}, locking.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
	}
	// The hot tasks are spread over the first half of the others.
	for n := range others {
		if hot > 0 && n%(others/hot/2) == 0 && n/(others/hot/2) < hot {
			if _, err := producer.Enqueue(b.Context(), "work", order{Order: "hot", Task: "hot"}, asynq.TaskID(fmt.Sprintf("hot%d", n))); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := producer.Enqueue(b.Context(), "work", order{Order: fmt.Sprint("order:", n), Task: "other"}); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	end := <-finished
	if err := w.Shutdown(); err != nil {
		b.Fatal(err)
	}
	return float64(others) / end.Sub(time.Unix(0, first.Load())).Seconds()
}
