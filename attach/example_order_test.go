package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// Three steps of an order are in queues of their own, of which the last step's is the busiest. They run in the order of
// the calls.
func ExampleProducer_EnqueueInOrder() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	server, err := miniredis.Run()
	check(err)
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks, err := attach.New(rdb, asynq.Config{
		LogLevel: asynq.FatalLevel, Queues: map[string]int{"pay": 1, "pack": 10, "ship": 100},
	}, attach.Options{})
	check(err)
	defer locks.Close()

	type order struct{ ID string }
	inOrder, err := locks.LockWith(attach.LockOptions{
		Key:      middleware.PayloadKey(func(o order) string { return middleware.Key("order", o.ID) }),
		Strategy: middleware.Requeue{Order: middleware.FIFO}, // the same for all handlers that work on the key
	})
	check(err)
	mux, done := asynq.NewServeMux(), make(chan struct{}, 3)
	mux.Handle("order:", inOrder(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		fmt.Println(task.Type())
		done <- struct{}{}
		return nil
	})))

	producer := locks.Producer(nil) // in another process: attach.NewProducer(rdb, attach.ProducerOptions{})
	payload, err := json.Marshal(order{"1042"})
	check(err)
	for _, step := range []string{"pay", "pack", "ship"} {
		_, err := producer.EnqueueInOrder(context.Background(), middleware.Key("order", "1042"),
			asynq.NewTask("order:"+step, payload), asynq.Queue(step))
		check(err)
	}
	srv := asynq.NewServerFromRedisClient(locks.Client(), locks.Config())
	check(srv.Start(mux))
	for range 3 {
		<-done
	}
	locks.Stop()
	srv.Shutdown()
	// Output:
	// order:pay
	// order:pack
	// order:ship
}
