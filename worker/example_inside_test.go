package worker_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/delayqueue"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// While an audit has the order, three tasks wait for it. An operator looks who they are, lets one go first and drops
// another.
func Example_lookInside() {
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
	w, err := worker.New(worker.Config{
		Redis:    at,
		Strategy: middleware.Requeue{},
	})
	check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	begun, looked := make(chan struct{}), make(chan struct{})
	for _, name := range []string{"audit", "allocate", "refund", "remind"} {
		check(worker.Handle(w, name, worker.Handler[Order]{
			Keys: func(o Order) []string { return []string{middleware.Key("order", o.ID)} },
			Run: func(context.Context, Order) error {
				switch name {
				case "audit":
					close(begun)
					<-looked
				case "allocate":
					stop()
				}
				fmt.Println("ran:", name)
				return nil
			},
		}))
	}
	check(w.Start(ctx))

	conn := redis.NewClient(&redis.Options{Addr: server.Addr()}) // the Redis of the tasks
	defer conn.Close()
	queue, err := delayqueue.New(conn, delayqueue.Options{})
	check(err)
	defer queue.Close()
	inspector := queue.Inspector()
	enqueue := func(name string) delayqueue.Task {
		_, err := client.Enqueue(ctx, name, Order{ID: "1042"}, asynq.TaskID(name))
		check(err)
		return delayqueue.Task{Queue: "default", ID: name}
	}
	enqueue("audit")
	<-begun
	for _, name := range []string{"allocate", "refund", "remind"} {
		for task := enqueue(name); ctx.Err() == nil; { // until it is parked
			if waiter, err := inspector.Find(ctx, task); err == nil && waiter.State == delayqueue.StateRetry {
				break
			}
		}
	}

	waiters, err := inspector.Waiters(ctx, "order:1042", 100)
	check(err)
	for _, waiter := range waiters {
		fmt.Println(waiter.Position, waiter.Task.ID)
	}
	check(inspector.PutFirst(ctx, "order:1042", waiters[1].Task))
	check(inspector.Drop(ctx, waiters[2].Task))
	close(looked)
	<-ctx.Done()
	check(w.Shutdown())
	// Output:
	// 1 allocate
	// 2 refund
	// 3 remind
	// ran: audit
	// ran: refund
	// ran: allocate
}
