package attach_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// The time from the first enqueue of 64 tasks, each of a key of its own, until all of them have started, on one Redis and in lanes.
func BenchmarkABurst(b *testing.B) {
	const tasks = 64
	for _, by := range []time.Duration{0, 2 * time.Millisecond} {
		for name, lanes := range map[string]int{"one Redis": 0, "lanes": 64} {
			b.Run(fmt.Sprintf("%s/far=%v", name, by), func(b *testing.B) {
				var near, client redis.UniversalClient
				if lanes > 0 {
					cluster := redistest.StartCluster(b, 3)
					near, client = cluster.Client(b), cluster.Client(b, func(o *redis.ClusterOptions) { o.Dialer = dialFar(by) })
				} else {
					server := redistest.Start(b)
					near = server.Client(b)
					client = redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: dialFar(by)})
				}
				b.Cleanup(func() { _ = client.Close() })
				a, err := attach.New(client, asynq.Config{Concurrency: 2 * tasks, LogLevel: asynq.FatalLevel}, attach.Options{Lanes: lanes})
				if err != nil {
					b.Fatal(err)
				}
				started := make(chan struct{}, tasks)
				server := asynq.NewServerFromRedisClient(a.Client(), a.Config())
				if err := server.Start(a.Lock(middleware.PayloadKey(func(key string) string { return key }))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					started <- struct{}{}
					<-time.After(5 * time.Millisecond)
					return nil
				}))); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					a.Stop()
					server.Shutdown()
					_ = a.Close()
				})
				producer, err := attach.NewProducer(near, attach.ProducerOptions{Lanes: lanes})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = producer.Close() })
				var all []time.Duration
				for b.Loop() {
					began := time.Now()
					var producing sync.WaitGroup
					for i := range 8 {
						producing.Go(func() {
							for n := i; n < tasks; n += 8 {
								key := fmt.Sprintf("order:%d", n)
								if _, err := producer.EnqueueContext(b.Context(), asynq.NewTask("audit", []byte(strconv.Quote(key))), attach.Keys(key)); err != nil {
									b.Error(err)
								}
							}
						})
					}
					for range tasks {
						select {
						case <-started:
						case <-time.After(limit):
							b.Fatal("a task has not started")
						}
					}
					all = append(all, time.Since(began))
					producing.Wait()
				}
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2].Seconds()*1000, "p50-ms")
				b.ReportMetric(all[len(all)*95/100].Seconds()*1000, "p95-ms")
			})
		}
	}
}
