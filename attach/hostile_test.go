package attach_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/internal/testing/hostile"
	"github.com/railtoken/railtoken/internal/testing/redistest"
	"github.com/railtoken/railtoken/middleware"
)

// FuzzRepliesToAServer spoils the replies that a server with locks gets, for a while. It must not panic, and loses no task: each has run in
// the end, and none is left.
func FuzzRepliesToAServer(f *testing.F) {
	for i, order := range []byte{0, 1, 2, 4, 5, 6} { // in each order, on one Redis and on a Cluster
		f.Add([][]byte{
			{2, 2, 1, 3, 3, 2, 9, 4, 3, 5, 5, 4},
			{0, 0, 0, 4, 6, 7, 0, 0, 0, 12, 8, 6, 7, 9, 0},
			{0, 0, 0, 0, 0, 0, 4, 10, 7, 0, 0, 0, 12, 12, 6, 7, 14, 1},
		}[i%3], order)
	}
	f.Fuzz(hostileServer)
}

func hostileServer(t *testing.T, data []byte, order byte) {
	synctest.Test(t, func(t *testing.T) {
		m, admin := redistest.Virtual(t)
		var client redis.UniversalClient = redistest.Patient(t, m)
		if order&4 != 0 {
			client = redistest.VirtualCluster(t, m)
		}
		replies := hostile.New(data)
		client.AddHook(replies)
		a, err := attach.New(client, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel}, attach.Options{
			Logger: slog.New(slog.DiscardHandler), Strategy: middleware.Requeue{Order: middleware.Order(order & 3 % 3)},
		})
		if err != nil {
			t.Fatal(err)
		}
		const tasks = 6
		var mu sync.Mutex
		ran := map[string]int{}
		producer, err := attach.NewProducer(redistest.VirtualClient(t, m), attach.ProducerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range tasks {
			if _, err := producer.EnqueueContext(t.Context(), asynq.NewTask("test", []byte(`"key"`)), asynq.TaskID(fmt.Sprint("t", i)),
				attach.Keys("key"), asynq.MaxRetry(10)); err != nil {
				t.Fatal(err)
			}
		}
		s := asynq.NewServerFromRedisClient(a.Client(), a.Config())
		lock := a.Lock(middleware.PayloadKey(func(key string) string { return key }))
		if err := s.Start(lock(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			time.Sleep(10 * time.Millisecond) // virtual
			mu.Lock()
			defer mu.Unlock()
			ran[id]++
			return nil
		}))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // virtual
		replies.Stop()
		for range 600 { // seconds: asynq's recoverer takes a minute or two, and a timer half a minute
			time.Sleep(time.Second) // virtual
			m.FastForward(time.Second)
		}
		mu.Lock()
		for i := range tasks {
			if n := ran[fmt.Sprint("t", i)]; n == 0 {
				t.Errorf("t%d has not run", i)
			}
		}
		mu.Unlock()
		if keys := admin.Keys(t.Context(), "asynq:{default}:t:*").Val(); len(keys) > 0 {
			t.Errorf("left are %q", keys)
		}
		s.Shutdown()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := producer.Close(); err != nil {
			t.Error(err)
		}
	})
}
