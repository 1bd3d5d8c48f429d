package attach_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
)

// An asynq server with locks: a stock server with the client and the Config of an Attached.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	rt, err := attach.New(client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{})
	if err != nil {
		panic(err)
	}
	defer rt.Close()

	type Order struct{ ID string }
	orderKey := middleware.PayloadKey(func(o Order) string { return middleware.Key("order", o.ID) })
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Handle("order:audit", rt.Lock(orderKey)(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		lease, _ := locking.FromContext(ctx)
		fmt.Println("working on", lease.Keys())
		return nil
	})))

	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	if err := srv.Start(mux); err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(Order{ID: "1042"})
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("order:audit", payload)); err != nil {
		panic(err)
	}
	<-done
	srv.Shutdown()
	// Output: working on [order:1042]
}

// Every replica says what the schedule is, and one of them runs it.
func ExampleAttached_Schedule() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	rt, err := attach.New(client, asynq.Config{LogLevel: asynq.FatalLevel}, attach.Options{})
	if err != nil {
		panic(err)
	}
	defer rt.Close()

	err = rt.Schedule("reports", func(client redis.UniversalClient) (attach.Scheduler, error) {
		s := asynq.NewSchedulerFromRedisClient(client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
		_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
		return s, err
	})
	if err != nil {
		panic(err)
	}

	fired := make(chan string)
	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	err = srv.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		fired <- task.Type()
		return nil
	}))
	if err != nil {
		panic(err)
	}
	fmt.Println(<-fired)
	rt.Stop()
	srv.Shutdown()
	// Output: report
}
