package attach_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// An idle server costs Redis little, those included that scripts call, and starts a task as soon as when each of its looks
// was a script.
func TestAnIdleServerSendsFewCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("it counts for half a minute")
	}
	t.Parallel()
	for queues, most := range map[int]float64{1: 30, 3: 60} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client(t)
			served := map[string]int{"default": 1}
			for i := 1; i < queues; i++ {
				served[fmt.Sprint("q", i)] = 1
			}
			began := make(chan time.Time, 1)
			a := attached(t, client, asynq.Config{Queues: served, LogLevel: asynq.FatalLevel, Concurrency: 10}, attach.Options{Recovery: soon})
			s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
			if err := s.Start(a.Unlocked(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				began <- time.Now()
				return nil
			}))); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
			tasks := asynq.NewClientFromRedisClient(server.Client(t))
			var took []time.Duration
			for i := range 100 {
				<-time.After(time.Duration(i%7) * 11 * time.Millisecond)
				at := time.Now()
				if _, err := tasks.Enqueue(asynq.NewTask("test", nil)); err != nil {
					t.Fatal(err)
				}
				took = append(took, receive(t, began).Sub(at))
			}
			slices.Sort(took)
			<-time.After(soon.After) // then its queues are swept, too
			from := redistest.Commands(t, client)
			<-time.After(10 * time.Second)
			rate := float64(redistest.Commands(t, client)-from) / 10
			t.Logf("%d queues: %.1f commands a second; a task starts after %v (p50), %v (p95)", queues, rate, took[50], took[95])
			if rate > most {
				t.Errorf("an idle server sends %.1f commands a second, want %.0f at most", rate, most)
				t.Log(client.Info(t.Context(), "commandstats").Val())
			}
		})
	}
}

// An idle server with lanes costs a Redis Cluster as little, and starts a task of a producer as soon.
func TestAnIdleServerWithLanesSendsFewCommands(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	began := make(chan time.Time, 1)
	a := attached(t, client, asynq.Config{
		Queues: map[string]int{"orders": 6, "audit": 3, "mail": 1}, LogLevel: asynq.FatalLevel, Concurrency: 10,
	}, attach.Options{Recovery: soon, Lanes: 64})
	s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
	if err := s.Start(a.Lock(middleware.PayloadKey(func(o struct{ Order string }) string { return o.Order }))(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		began <- time.Now()
		return nil
	}))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	producer, err := attach.NewProducer(client, attach.ProducerOptions{Lanes: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = producer.Close() })
	var took []time.Duration
	for i := range 100 {
		<-time.After(time.Duration(i%7) * 11 * time.Millisecond)
		at, order := time.Now(), fmt.Sprint(i)
		task := asynq.NewTask("test", fmt.Appendf(nil, `{"order":%q}`, order), asynq.Queue("audit"))
		if _, err := producer.EnqueueContext(t.Context(), task, attach.Keys(order)); err != nil {
			t.Fatal(err)
		}
		took = append(took, receive(t, began).Sub(at))
	}
	slices.Sort(took)
	if took[90] > 500*time.Millisecond {
		t.Errorf("a tenth of the tasks starts later than after %v: no notice came", took[90])
	}
	<-time.After(soon.After) // then its queues are swept, too
	var masters []*redis.Client
	for _, node := range cluster.Nodes() {
		masters = append(masters, node.Client(t))
	}
	all := func() (n int) {
		for _, master := range masters {
			n += redistest.Commands(t, master)
		}
		return n
	}
	from := all()
	<-time.After(10 * time.Second)
	rate := float64(all()-from) / 10
	t.Logf("%.1f commands a second; a task starts after %v (p50), %v (p95)", rate, took[50], took[95])
	if rate > 60 {
		t.Errorf("an idle server with lanes sends %.1f commands a second, want 60 at most", rate)
		for _, master := range masters {
			t.Log(master.Info(t.Context(), "commandstats").Val())
		}
	}
}
