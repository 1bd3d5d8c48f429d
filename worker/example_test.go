package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// Order is the payload of the examples' tasks.
type Order struct {
	ID         string
	Warehouses []string
}

// A worker locks the order, and the warehouses that it takes goods from, while it allocates them.
func Example() {
	server, err := embeddedredis.Start() // in production: a Redis, by worker.FromEnv
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	at := worker.Redis{Addr: server.Addr()}

	w, err := worker.New(worker.Config{Redis: at})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := worker.Handle(w, "order:allocate", worker.Handler[Order]{
		Keys: func(o Order) []string { return append([]string{middleware.Key("order", o.ID)}, o.Warehouses...) },
		Run: func(ctx context.Context, o Order) error {
			defer stop() // one task is enough for an example
			lease, _ := locking.FromContext(ctx)
			fmt.Println("allocating order", o.ID, "under", lease.Keys())
			return nil
		},
	}); err != nil {
		log.Fatal(err)
	}

	client, err := worker.NewClient(at)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Enqueue(ctx, "order:allocate", Order{"1042", []string{"hamburg", "kiel"}}); err != nil {
		log.Fatal(err)
	}

	if err := w.Run(ctx); err != nil { // until ctx ends; then it shuts down in order
		log.Fatal(err)
	}
	fmt.Println("done")
	// Output:
	// allocating order 1042 under [hamburg kiel order:1042]
	// done
}

// Every fault of the environment is reported at once, with its remedy.
func ExampleFromEnv() {
	defer environment(
		"RAILTOKEN_REDIS_ADR=127.0.0.1:6379",
		"RAILTOKEN_CONCURRENCY=ten",
		"RAILTOKEN_SHUTDOWN_TIMEOUT=20",
	)()

	_, err := worker.FromEnv()
	fmt.Println(err)
	// Output:
	// worker: RAILTOKEN_REDIS_ADR is no variable of railtoken: correct or unset it (did you mean RAILTOKEN_REDIS_ADDR?)
	// worker: RAILTOKEN_CONCURRENCY is "ten": give a whole number, such as 10
	// worker: RAILTOKEN_SHUTDOWN_TIMEOUT is "20": give a duration with its unit, such as 30s or 250ms
	// worker: no address of Redis: set RAILTOKEN_REDIS_ADDR to host:port (or _MASTER and _SENTINELS, or _CLUSTER)
}

// A Redis may be logged: it shows its addresses and no secret.
func ExampleRedis_String() {
	at := worker.Redis{Master: "orders", Sentinels: []string{"10.0.0.1:26379", "10.0.0.2:26379"}, Username: "worker", Password: "hunter2"}
	fmt.Println(at)
	fmt.Printf("%+v\n", at.Password)
	// Output:
	// master orders of sentinels 10.0.0.1:26379,10.0.0.2:26379
	// [redacted]
}

// Every fault of a handler is reported at once, before anything runs.
func ExampleHandle() {
	w, err := worker.New(worker.Config{Redis: worker.Redis{Addr: "127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = w.Shutdown() }() // it was not started

	fmt.Println(worker.Handle(w, "order:audit", worker.Handler[Order]{}))
	fmt.Println(worker.Handle(w, "order:audit", worker.Handler[Order]{
		Run:  func(context.Context, Order) error { return nil },
		Keys: func(o Order) []string { return []string{middleware.Key("order", o.ID)} },
		// A person waits for the answer: a short wait in the slot, then an error that says who has the order.
		Strategy: middleware.Wait{Max: 250 * time.Millisecond}.Then(middleware.FailFast{}),
	}))
	// Output:
	// worker: handler of "order:audit": Run is not set
	// worker: handler of "order:audit": Keys is not set: return the business keys to lock, or set Unlocked
	// <nil>
}

// A unique task is there once, also when the producer is asked twice.
func ExampleClient_Enqueue() {
	server, err := embeddedredis.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := worker.NewClient(worker.Redis{Addr: server.Addr()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for range 2 {
		info, err := client.Enqueue(context.Background(), "order:audit", Order{ID: "1042"},
			asynq.Unique(time.Hour), asynq.Timeout(300*time.Millisecond))
		if errors.Is(err, asynq.ErrDuplicateTask) {
			fmt.Println("it is there already")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.State, "in queue", info.Queue, "with a timeout of", info.Timeout)
	}
	// Output:
	// pending in queue default with a timeout of 1s
	// it is there already
}
