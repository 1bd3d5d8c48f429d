package attach_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/attach"
	"github.com/railtoken/railtoken/middleware"
)

// An article gets three prices while nobody works on the queue. One task waits, and has the last of them.
func ExampleLatest() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	producer, err := attach.NewProducer(client, attach.ProducerOptions{})
	if err != nil {
		panic(err)
	}
	defer producer.Close()

	ctx, id := context.Background(), "1042"
	for _, price := range []string{"9.90", "9.50", "8.90"} {
		payload := []byte(price)
		_, err = producer.EnqueueContext(ctx, asynq.NewTask("price:publish", payload),
			attach.Keys(middleware.Key("article", id)), attach.Latest{Quiet: 5 * time.Second, Most: time.Minute})
		if err != nil {
			panic(err)
		}
	}
	waiting, err := asynq.NewInspectorFromRedisClient(client).ListScheduledTasks("default")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d task, with the price %s\n", len(waiting), waiting[0].Payload)
	// Output: 1 task, with the price 8.90
}
