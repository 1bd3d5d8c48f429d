package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// Three steps of an order are in queues of their own, of which the last step's is the busiest. They run in the order of
// the calls.
func ExampleClient_EnqueueInOrder() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	server, err := embeddedredis.Start()
	check(err)
	defer server.Close()
	at := worker.Redis{Addr: server.Addr()}
	client, err := worker.NewClient(at)
	check(err)
	defer client.Close()
	w, err := worker.New(worker.Config{Redis: at, Queues: map[string]int{"pay": 1, "pack": 10, "ship": 100}})
	check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	for _, step := range []string{"pay", "pack", "ship"} {
		check(worker.Handle(w, "order:"+step, worker.Handler[Order]{
			Keys:     func(o Order) []string { return []string{middleware.Key("order", o.ID)} },
			Strategy: middleware.Requeue{Order: middleware.FIFO}, // the same for all handlers that work on the key
			Run: func(_ context.Context, o Order) error {
				fmt.Println(step, o.ID)
				if step == "ship" {
					stop()
				}
				return nil
			},
		}))
		_, err := client.EnqueueInOrder(ctx, "order:1042", "order:"+step, Order{ID: "1042"}, asynq.Queue(step))
		check(err)
	}
	check(w.Run(ctx))
	// Output:
	// pay 1042
	// pack 1042
	// ship 1042
}
