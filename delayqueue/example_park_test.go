package delayqueue_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/delayqueue"
)

// A task waits until the warehouse opens, and occupies no worker slot meanwhile.
func ExampleQueue_Park() {
	ctx := context.Background()
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

	open, done := make(chan struct{}), make(chan struct{})
	srv := asynq.NewServerFromRedisClient(rt.Client(), rt.Config())
	err = srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		select {
		case <-open:
			fmt.Println("delivered")
			close(done)
			return nil
		default:
			return rt.Queue().Park(ctx, "warehouse", delayqueue.ParkOptions{})
		}
	}))
	if err != nil {
		panic(err)
	}
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(asynq.NewTask("deliver", nil)); err != nil {
		panic(err)
	}
	for n := 0; n == 0; {
		if n, err = rt.Queue().Inspector().Count(ctx); err != nil {
			panic(err)
		}
	}
	fmt.Println("waits")

	close(open)
	if _, err := rt.Queue().Wake(ctx, "warehouse", delayqueue.WakeOptions{}); err != nil {
		panic(err)
	}
	<-done
	rt.Stop()
	srv.Shutdown()
	// Output:
	// waits
	// delivered
}
