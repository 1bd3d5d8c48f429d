package embeddedredis_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// A client that takes a key with SET NX excludes the next one, as on a Redis.
func Example() {
	server, err := embeddedredis.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	ctx := context.Background()
	for _, worker := range []string{"auditor", "splitter"} {
		taken, err := client.SetNX(ctx, "order:42", worker, 30*time.Second).Result()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(worker, taken)
	}
	// Output:
	// auditor true
	// splitter false
}

// Clients in one process wake each other by messages.
func ExampleStart() {
	server, err := embeddedredis.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	ctx := context.Background()
	listener := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer listener.Close()
	released := listener.Subscribe(ctx, "released")
	defer released.Close()
	if _, err := released.Receive(ctx); err != nil { // the subscription is in force
		log.Fatal(err)
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		holder := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer holder.Close()
		if err := holder.Publish(ctx, "released", "order:42").Err(); err != nil {
			log.Fatal(err)
		}
	})
	message := <-released.Channel()
	wg.Wait()
	fmt.Println(message.Payload, "is free")
	// Output:
	// order:42 is free
}
