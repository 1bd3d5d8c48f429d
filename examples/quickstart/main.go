// Command quickstart audits and allocates an order: tasks of two types, in two queues, that never work on it at the
// same time.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/railtoken/railtoken/locking"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
	"github.com/railtoken/railtoken/worker/embeddedredis"
)

// Audit and Allocate are the payloads of the two task types.
type (
	Audit    struct{ Order string }
	Allocate struct {
		Order      string
		Warehouses []string
	}
)

func main() {
	redis, err := embeddedredis.Start() // with a Redis of your own: cfg, err := worker.FromEnv()
	check(err)
	cfg := worker.Config{Redis: worker.Redis{Addr: redis.Addr()}, Queues: map[string]int{"audit": 1, "allocate": 1}}
	client, err := worker.NewClient(cfg.Redis)
	check(err)
	w, err := worker.New(cfg)
	check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)

	check(worker.Handle(w, "order:audit", worker.Handler[Audit]{
		Keys: func(a Audit) []string { return []string{middleware.Key("order", a.Order)} },
		Run: func(ctx context.Context, a Audit) error {
			// The allocation conflicts with this audit. It is parked, and woken as soon as the audit is done.
			_, err := client.Enqueue(ctx, "order:allocate", Allocate{a.Order, []string{"hamburg", "kiel"}}, asynq.Queue("allocate"))
			fmt.Println("audit begins")
			time.Sleep(300 * time.Millisecond)
			fmt.Println("audit ends")
			return err
		},
	}))
	check(worker.Handle(w, "order:allocate", worker.Handler[Allocate]{
		Keys: func(a Allocate) []string { return append(a.Warehouses, middleware.Key("order", a.Order)) }, // all of them or none
		Run: func(ctx context.Context, a Allocate) error {
			defer stop()
			lease, _ := locking.FromContext(ctx)
			token, err := lease.FenceOf(ctx, middleware.Key("order", a.Order)) // so that the database can refuse smaller ones
			fmt.Println("allocation runs, fenced:", token > 0)
			return err
		},
	}))

	_, err = client.Enqueue(ctx, "order:audit", Audit{"1042"}, asynq.Queue("audit"))
	check(err)
	check(w.Run(ctx)) // works until ctx ends, then shuts down in order
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
